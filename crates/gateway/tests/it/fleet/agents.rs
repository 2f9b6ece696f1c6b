//! Who asks a gateway over TCP has to show who he is, and is told what is wrong.

use std::process::Command;

use ringside_netlab::{Namespace, wait_until};

use super::Etcd;
use super::authority::Authority;
use super::common::Folder;
use super::common::daemon::{Daemon, binary, free_port};
use super::common::etcd::{IMPATIENT, configure};
use super::members::{member_at, shares};
use super::process::{PATIENCE, Running};

/// Who vouches for whom: gateways and operators, hosts.
pub(crate) struct Authorities {
    ours: Authority,
    hosts: Authority,
}

impl Authorities {
    pub(crate) fn new() -> Self {
        Self {
            ours: Authority::new("ours"),
            hosts: Authority::new("hosts"),
        }
    }

    /// Writes a gateway's files, or others in their place.
    fn write(&self, folder: &Folder) {
        self.ours.write(&["127.0.0.1".to_owned()], folder, "gateway");
        Authority::write_trusted_as(&[&self.ours], folder, "clients.pem");
        Authority::write_trusted_as(&[&self.hosts], folder, "hosts.pem");
    }

    /// Writes a host's files, or others in their place.
    pub(crate) fn write_host(&self, folder: &Folder) {
        Authority::write_trusted_as(&[&self.ours], folder, "ours.pem");
        self.hosts.write(&["host-1".to_owned()], folder, "host");
    }
}

/// Has a gateway of a fleet, whose files are there, say that hosts send to this address, and take calls over TCP at a port.
fn set_up(folder: &Folder, etcd: &Etcd, address: &str, port: u16) {
    let file = |name: &str| folder.join(name).display().to_string();
    let more = format!(
        "[fleet]\nname = \"gateway-1\"\naddresses = [\"{address}\"]\n\
         [api.tcp]\nlisten = \"127.0.0.1:{port}\"\ncertificate = {:?}\nkey = {:?}\nclient-ca = {:?}\nhost-ca = {:?}\n",
        file("gateway.pem"),
        file("gateway.key"),
        file("clients.pem"),
        file("hosts.pem"),
    );
    configure(folder, &etcd.endpoint(), IMPATIENT, &more);
}

/// A gateway of a fleet with an API over TCP, and where that is.
pub(crate) fn gateway(etcd: &Etcd, authorities: &Authorities) -> (Daemon, String) {
    let folder = Folder::new();
    authorities.write(&folder);
    let port = free_port();
    set_up(&folder, etcd, "192.0.2.1", port);
    (Daemon::start_in(folder), format!("https://127.0.0.1:{port}"))
}

/// Options of who shows this certificate and believes this authority.
fn shows(folder: &Folder, who: &str, ca: &str) -> Vec<String> {
    let option = |name: &str, file: &str| [format!("--{name}"), folder.join(file).display().to_string()];
    [
        option("ca", ca),
        option("certificate", &format!("{who}.pem")),
        option("key", &format!("{who}.key")),
    ]
    .concat()
}

/// `ip` in a namespace, and what it says.
pub(crate) fn ip(host: &Namespace, words: &str) -> String {
    let output = host.command("ip").args(words.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn agents_over_tcp_show_who_they_are_or_are_told_what_is_wrong() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let (authorities, others) = (Authorities::new(), Authority::new("others"));
    let etcd = Etcd::start();
    let (mut gateway, address) = gateway(&etcd, &authorities);
    gateway.wait("its map", |gateway| {
        gateway.log().contains("shards were given or taken")
    });
    let folder = Folder::new();
    Authority::write_trusted_as(&[&others], &folder, "others.pem");
    authorities.write_host(&folder);
    let name = ["host-1".to_owned()];
    authorities.ours.write(&name, &folder, "operator");
    others.write(&name, &folder, "stranger");
    authorities.hosts.write_expired(&name, &folder, "late");

    // Not where others have endpoints: it changes those that it finds.
    let empty = Namespace::create("fleet-agents").expect("a namespace");
    let agent = |options: &[String]| {
        let mut command = binary();
        command.args(["ctl", "agent", "--endpoint", &address, "--netns", empty.name()]);
        command.args(options);
        Running::new(command)
    };
    agent(&shows(&folder, "host", "ours.pem")).wait_for("generation 1 of the map");
    // Who may do anything may ask, too.
    agent(&shows(&folder, "operator", "ours.pem")).wait_for("generation 1 of the map");

    for (options, expected) in [
        (
            shows(&folder, "host", "others.pem"),
            "the gateway's certificate is of no authority that --ca names",
        ),
        (
            shows(&folder, "stranger", "ours.pem"),
            "the gateway does not know the authority of --certificate (its api.tcp.host-ca for hosts, client-ca for operators)",
        ),
        (
            shows(&folder, "late", "ours.pem"),
            "the gateway says that --certificate has expired",
        ),
    ] {
        // The same whatever is asked.
        let mut health = binary();
        health.args(["ctl", "health", "--address", &address]).args(&options);
        let output = health.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let whole = format!("ringside-gateway: connecting to the gateway at {address}: {expected}\n");
        assert_eq!((said.as_ref(), output.status.code()), (&*whole, Some(1)));
        let refused = || gateway.log().matches("a client was refused").count();
        let before = refused();
        let agent = agent(&options);
        agent.wait_for(&format!("{address}: connecting: {expected}\n"));
        // The agent retries, because certificates are renewed. It does not repeat its last message.
        let tries = wait_until(PATIENCE, || refused() >= before + 4);
        assert!(tries, "{}", gateway.log());
        let told = agent.told();
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines.windows(2).all(|both| both[0] != both[1]), "{told}");
    }

    for (options, expected) in [
        (vec![], "https:// takes --ca, --certificate and --key"),
        (
            [
                &shows(&folder, "host", "ours.pem")[..4],
                &shows(&folder, "late", "ours.pem")[4..],
            ]
            .concat(),
            "--key is not the key of --certificate",
        ),
        (shows(&folder, "host", "host.key"), "--ca: there is no certificate in "),
        (shows(&folder, "nobody", "ours.pem"), "--certificate: reading "),
    ] {
        let mut command = binary();
        command.args(["ctl", "agent", "--endpoint", &address]).args(options);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{said}");
        assert!(
            said.contains("--endpoint https://") && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn an_owner_without_an_address_of_a_hosts_family_is_told_of_once() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let etcd = Etcd::start();
    let mut one = member_at(&etcd, "one", "[\"192.0.2.1\"]", "");
    one.wait("its shards", |one| shares(one) == [("one".to_owned(), 1024)]);
    let host = Namespace::create("fleet-family").expect("a namespace");
    ip(
        &host,
        "link add six type vxlan id 42 remote 2001:db8::9 dstport 4789 nolearning",
    );
    let mut command = binary();
    let endpoint = format!("unix:{}", one.folder.join("api.sock").display());
    command.args(["ctl", "agent", "--endpoint", &endpoint, "--netns", host.name()]);
    let agent = Running::new(command);
    let said = "six: its network is one's, which has no IPv6 address that hosts can send to";
    agent.wait_for(said);
    assert!(
        agent.told().contains("it goes on sending to 2001:db8::9"),
        "{}",
        agent.told()
    );
    // It looks again, for there is another one, and does not say it again.
    ip(
        &host,
        "link add four type vxlan id 43 remote 192.0.2.9 dstport 4790 nolearning",
    );
    let follows = || ip(&host, "-d link show four").contains("remote 192.0.2.1 ");
    assert!(wait_until(PATIENCE, follows), "{}", agent.told());
    assert_eq!(agent.told().matches(said).count(), 1, "{}", agent.told());
    // The gateway says so itself once another one has such an address.
    one.wait("health", |one| one.ctl(&["health"]).status.success());
    let mut two = member_at(&etcd, "two", "[\"192.0.2.2\", \"2001:db8::2\"]", "");
    one.wait("its complaint", |one| {
        let health = String::from_utf8_lossy(&one.ctl(&["health"]).stdout).into_owned();
        health.contains("no IPv6 address in fleet.addresses, and two has one")
    });
    two.wait("health", |two| two.ctl(&["health"]).status.success());
}

/// The program with no more capabilities than the agent's unit leaves to it.
fn as_in_its_unit() -> Command {
    let unit = include_str!("../../../../../packaging/ringside-gateway-agent.service");
    let line = (unit.lines()).find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let kept: String = (line.expect("it has some").split(' '))
        .map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let mut command = Command::new("setpriv");
    command.args(["--no-new-privs", &format!("--bounding-set=-all{kept}")]);
    command.arg(binary().get_program());
    command
}

#[test]
fn certificates_of_another_authority_are_taken_up_by_an_agent_that_runs() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let etcd = Etcd::start();
    let (mut gateway, address) = gateway(&etcd, &Authorities::new());
    let folder = Folder::new();
    let rotate = |gateway: &Folder| {
        let newer = Authorities::new();
        newer.write(gateway);
        newer.write_host(&folder);
    };
    rotate(&gateway.folder);
    let takes = |gateway: &mut Daemon, times: usize| {
        gateway.signal("HUP");
        gateway.wait("the certificates", |gateway| {
            gateway
                .log()
                .matches("the certificates of api.tcp were read again")
                .count()
                == times
        });
    };
    takes(&mut gateway, 1);

    let host = Namespace::create("fleet-rotate").expect("a namespace");
    ip(
        &host,
        "link add seven type vxlan id 42 remote 192.0.2.9 dstport 4789 nolearning",
    );
    let mut command = as_in_its_unit();
    command.args(["ctl", "agent", "--endpoint", &address, "--netns", host.name()]);
    command.args(shows(&folder, "host", "ours.pem"));
    let agent = Running::new(command);
    let follows = |to: &str| {
        let remote = format!("remote {to} ");
        let follows = wait_until(PATIENCE, || ip(&host, "-d link show seven").contains(&remote));
        assert!(follows, "not {to}: {}", agent.told());
    };
    let heard = " of the map\n";
    follows("192.0.2.1");
    agent.wait_for_times(heard, 1);

    // Nobody would get in with what was good before: this one does, at a signal.
    rotate(&gateway.folder);
    takes(&mut gateway, 2);
    let hears_again = || {
        let before = agent.told().matches(heard).count();
        agent.signal(libc::SIGHUP);
        agent.wait_for_times(heard, before + 1);
    };
    hears_again();

    // With a file that holds no key it goes on with what was good, and says so once.
    let key = std::fs::read(folder.join("host.key")).unwrap();
    let complaint = "--key: there is no key in ";
    std::fs::write(folder.join("host.key"), "none").unwrap();
    for _ in 0..2 {
        hears_again();
    }
    agent.wait_for(complaint);
    assert_eq!(agent.told().matches(complaint).count(), 1, "{}", agent.told());
    assert!(
        agent.told().contains("; what was read before is used on\n"),
        "{}",
        agent.told()
    );
    std::fs::write(folder.join("host.key"), key).unwrap();

    // And of its own accord where it connects anew: nobody tells it that this gateway is another one now.
    let port = address.rsplit(':').next().unwrap().parse().unwrap();
    let gone = gateway.stop();
    rotate(&gone);
    set_up(&gone, &etcd, "192.0.2.2", port);
    let _gateway = Daemon::start_in(gone);
    follows("192.0.2.2");
    let told = agent.told();
    assert!(
        !told.contains("authority"),
        "it has shown, or believed, what was good before: {told}"
    );
}
