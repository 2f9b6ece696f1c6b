//! Packets that are neither lost nor delivered.

use ringside_netlab::End;

/// An end at which every packet waits in a queue that lets a few in a second through. For so long the kernel has it on
/// its sender's account.
pub(crate) struct Jam<'l>(&'l End);

impl<'l> Jam<'l> {
    pub(crate) fn at(end: &'l End) -> Self {
        let jam = Self(end);
        // For GRO the kernel takes a packet from its sender's account as soon as it arrives.
        // https://elixir.bootlin.com/linux/v6.18/C/ident/skb_prepare_for_gro
        end.run(|| end.interface.set_feature("rx-gro", false)).unwrap();
        jam.run("ip link add jam type ifb");
        jam.run("ip link set jam up");
        jam.run("tc qdisc add dev jam root tbf rate 32kbit burst 3200 limit 100000000");
        jam.run("tc qdisc add dev veth-b ingress");
        jam.run("tc filter add dev veth-b parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev jam");
        jam
    }

    /// Lets everything through from now on.
    pub(crate) fn dissolve(&self) {
        self.run("tc qdisc change dev jam root tbf rate 10gbit burst 1000000 limit 100000000");
    }

    fn run(&self, command: &str) {
        let mut words = command.split(' ');
        let program = words.next().unwrap();
        let output = self.0.ns.command(program).args(words).output().unwrap();
        assert!(
            output.status.success(),
            "{command}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
