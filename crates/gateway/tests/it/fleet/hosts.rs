//! Tenants behind hosts at the cluster's switch, and an agent on each host, which has networks sent to the gateways that own them.
//!
//! ```text
//!   etcd …   gateways …   host 10.77.0.21            host 10.77.0.22
//!     └──────────┴───────────┴── switch ─────────────────┘
//!                 behind each host a tenant of each of three networks: 10.0.0.21 and 10.0.0.22 in all of them
//! ```
//! Each gateway owns one of the networks, when all of them live. The first one's and the last one's have rules, so that connections
//! are tracked there; the second one's has none.

use std::net::IpAddr;
use std::sync::Arc;

use ringside_gateway::fleet::shards::record;
use ringside_gateway_core::Vni;
use ringside_gateway_core::shard::{Member, Shard, preferred};
use ringside_netlab::{Device, Lab, Namespace, wait_until};

use super::authority::Authority;
use super::cluster::{NAMES, PATIENCE};
use super::common::Folder;
use super::common::daemon::binary;
use super::movers::Movers;
use super::node::Gateway;
use super::objects::{GROUPS, NETWORKS};
use super::process::Running;
use super::tenant::{Family, Place, Tenant, join, neighbors};

/// Last bytes of hosts' addresses.
const PLACES: [u8; 2] = [21, 22];
/// An agent says so of each gateway that it hears.
const OF_THE_MAP: &str = "of the map";
/// Where a tenant takes connections.
pub(crate) const TCP: u16 = 7000;

/// Who vouches for gateways' API, and for hosts that ask there.
pub(crate) struct Authorities {
    gateways: Authority,
    hosts: Authority,
}

impl Authorities {
    pub(crate) fn new() -> Self {
        Self {
            gateways: Authority::new("gateways"),
            hosts: Authority::new("hosts"),
        }
    }

    /// From now on others vouch for gateways' API and for hosts, as an operator goes over to them: first both are trusted, then certificates are
    /// the new ones, and in the end nobody trusts the old ones.
    pub(crate) fn rotate(&mut self, gateways: &mut [Gateway], hosts: &Hosts) {
        let other = Self::new();
        for (shown, trusted) in [
            (&*self, &[&*self, &other][..]),
            (&other, &[&*self, &other]),
            (&other, &[&other]),
        ] {
            for gateway in gateways.iter_mut() {
                let said = "the certificates of api.tcp were read again";
                let address = gateway.host.ip().to_string();
                let daemon = gateway.daemon();
                let before = daemon.log().matches(said).count();
                shown.write(&daemon.folder, &address, trusted);
                daemon.signal("HUP");
                daemon.wait(said, |daemon| daemon.log().matches(said).count() > before);
            }
            shown.write_host(&hosts.folder, trusted);
            for agent in &hosts.agents {
                let before = agent.told().matches(OF_THE_MAP).count();
                agent.signal(libc::SIGHUP);
                agent.wait_for_times(OF_THE_MAP, before + 1);
            }
        }
        *self = other;
    }

    /// A gateway's files.
    fn write(&self, folder: &Folder, address: &str, trusted: &[&Self]) {
        let of = |which: fn(&Self) -> &Authority| trusted.iter().map(|one| which(one)).collect::<Vec<_>>();
        self.gateways.write(&[address.to_owned()], folder, "api");
        Authority::write_trusted_as(&of(|one| &one.gateways), folder, "gateways.pem");
        Authority::write_trusted_as(&of(|one| &one.hosts), folder, "hosts.pem");
    }

    /// A host's.
    fn write_host(&self, folder: &Folder, trusted: &[&Self]) {
        self.hosts.write(&["host".to_owned()], folder, "host");
        let gateways: Vec<&Authority> = trusted.iter().map(|one| &one.gateways).collect();
        Authority::write_trusted_as(&gateways, folder, "gateways.pem");
    }

    /// `[fleet]`'s API, `[api.tcp]` and the data path of a gateway, whose files are there.
    pub(crate) fn configure(&self, folder: &Folder, address: &str) -> String {
        self.write(folder, address, &[self]);
        let file = |name: &str| folder.join(name).display().to_string();
        format!(
            "api = \"https://{address}:7443\"\n\
             [api.tcp]\nlisten = \"{address}:7443\"\ncertificate = {:?}\nkey = {:?}\nclient-ca = {:?}\nhost-ca = {:?}\n\
             [path]\nmode = \"native\"\ninterface = \"eth0\"\ncached-neighbors = 4096\ncached-connections = 4096\n\
             [connections]\nlimit = 10000\nper-tenant = 5000\n",
            file("api.pem"),
            file("api.key"),
            file("gateways.pem"),
            file("hosts.pem"),
        )
    }
}

/// A network that a gateway owns when all live, with a tenant at each host.
pub(crate) struct Network {
    pub(crate) vni: u32,
    pub(crate) owner: &'static str,
    pub(crate) tenants: [Tenant; 2],
}

/// See the module.
pub(crate) struct Hosts {
    // In the order in which it is taken down.
    agents: Vec<Running>,
    pub(crate) networks: Vec<Network>,
    /// Those whose addresses change.
    pub(crate) movers: Arc<Movers>,
    _wires: Vec<Lab>,
    folder: Folder,
}

/// The first network of tenants that this gateway owns.
fn network_of(name: &str) -> u32 {
    let member = |name: &str| Member {
        id: record::id(name),
        weight: 100,
        is_synced: true,
        is_draining: false,
    };
    let members = NAMES.map(member);
    let is_its = |vni: &u32| {
        let shard = Shard::of(Vni::new(*vni).expect("24 bits"));
        preferred(shard, &members).is_some_and(|owner| owner.id == record::id(name))
    };
    (NETWORKS..).find(is_its).expect("each owns some")
}

/// TCP to the second tenant and UDP both ways; what answers a connection only this connection allows.
fn rules(vni: u32) -> String {
    let [one, other] = PLACES.map(|number| format!("{{vni: {vni}, ip: 10.0.0.{number}, groups: "));
    format!("  - {one}[{GROUPS}]}}\n  - {other}[{}]}}\n", GROUPS + 1)
}

impl Hosts {
    /// Has gateways know them, and hosts follow these.
    pub(crate) fn new(tag: &str, switch: &Device, gateways: &mut [Gateway], authorities: &Authorities) -> Self {
        let place = Place::vxlan(Family::V4);
        let wires = PLACES.map(|number| {
            let ns = Namespace::create(&format!("{tag}-{number}")).expect("namespace");
            join(switch, &ns, (&format!("host{number}"), number, 0), (true, 1))
        });
        let networks: Vec<Network> = gateways
            .iter()
            .map(|gateway| {
                let vni = network_of(gateway.name);
                let tenant =
                    |at: usize| Tenant::new(tag, (vni, PLACES[at]), place, &wires[at], gateway.host.ip().into());
                Network {
                    vni,
                    owner: gateway.name,
                    tenants: [0, 1].map(tenant),
                }
            })
            .collect();
        let cards: Vec<_> = networks
            .iter()
            .flat_map(|network| network.tenants.iter().map(|tenant| tenant.card))
            .collect();
        let at = gateways.iter().map(|gateway| gateway.host.ip()).collect();
        let movers = Movers::new(tag, switch, &wires, at);
        let [moving_neighbors, moving_ports] = movers.objects();
        let (first, second) = (GROUPS, GROUPS + 1);
        let objects = format!(
            "{}{moving_neighbors}groups:\n  - {{id: {first}, rules: [{{id: 1, direction: egress}}, {{id: 2, direction: ingress, protocol: udp}}]}}\n  \
             - {{id: {second}, rules: [{{id: 1, direction: ingress, protocol: tcp, ports: {TCP}}}, \
             {{id: 2, direction: ingress, protocol: udp}}, {{id: 3, direction: egress, protocol: udp}}]}}\nports:\n{}{}{moving_ports}",
            neighbors(&cards),
            rules(networks[0].vni),
            rules(networks[2].vni),
        );
        let folder = Folder::new();
        let file = folder.join("objects.yaml");
        std::fs::write(&file, objects).expect("a file");
        gateways[0].daemon().ok(&["apply", "-f", file.to_str().expect("UTF-8")]);
        authorities.write_host(&folder, &[authorities]);
        let endpoints: Vec<String> = gateways
            .iter()
            .map(|gateway| format!("https://{}:7443", gateway.host.ip()))
            .collect();
        let agents = [0, 1].map(|at: usize| {
            let tenants: Vec<&str> = networks.iter().map(|network| network.tenants[at].ns.name()).collect();
            let mut command = wires[at].a.ns.command(binary().get_program());
            command.arg("ctl");
            for (option, file) in [
                ("--ca", "gateways.pem"),
                ("--certificate", "host.pem"),
                ("--key", "host.key"),
            ] {
                command.arg(option).arg(folder.join(file));
            }
            command.args([
                "agent",
                "--endpoint",
                &endpoints.join(","),
                "--netns",
                &tenants.join(","),
            ]);
            Running::new(command)
        });
        for agent in &agents {
            agent.wait_for(OF_THE_MAP);
        }
        Self {
            agents: agents.into(),
            networks,
            movers: Arc::new(movers),
            _wires: wires.into(),
            folder,
        }
    }

    /// What agents have said so far.
    pub(crate) fn told(&self) -> String {
        let all = |agent: &Running| agent.told() + &agent.printed();
        self.agents.iter().map(all).collect()
    }

    /// Waits until each network is sent to the gateway that owns it when all live.
    pub(crate) fn follow(&self, gateways: &[Gateway]) {
        for network in &self.networks {
            let owner = gateways.iter().find(|gateway| gateway.name == network.owner);
            let to = IpAddr::from(owner.expect("one of them").host.ip());
            let remote = |tenant: &Tenant| {
                let made = tenant.ns.run(|| tenant.interface().vxlan()).expect("read");
                made.expect("an endpoint").remote
            };
            let follow = || network.tenants.iter().all(|tenant| remote(tenant) == Some(to));
            assert!(wait_until(PATIENCE, follow), "{} of {}", network.vni, network.owner);
        }
    }
}
