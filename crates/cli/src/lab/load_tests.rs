use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig};

use super::*;

const SENT: &str = r#"echo '{"end":{"sum_sent":{"seconds":2,"bits_per_second":4000}}}'"#;
const RECEIVED: &str = r#"echo '{"end":{"sum_received":{"bytes":500}}}'"#;

fn shell(script: &str) -> Program {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Program::start("a shell", command, &[]).expect("a shell")
}

/// Waits for the client to end, and ends both.
fn bits(server: &str, client: &str) -> [Option<f64>; 2] {
    let mut on = On {
        name: String::new(),
        description: String::new(),
        udp: None,
        tcp: None,
        programs: vec![shell(server), shell(client)],
        inside: None,
        iperf3: Some(Iperf3 {
            client: 1,
            server: Some(0),
            asked_bits_per_s: None,
        }),
    };
    let client = &mut on.programs[1].child;
    assert!(wait_until(END, || matches!(client.try_wait(), Ok(Some(_)))));
    on.bits()
}

#[test]
fn a_server_that_still_writes_is_not_interrupted() {
    // A signal ends iperf3 3.16 in the middle of its output.
    let server = format!("trap 'echo {{; exit 1' INT; sleep 0.3 & wait; {RECEIVED}");
    assert_eq!(bits(&server, SENT), [Some(4000.0), Some(2000.0)]);
}

#[test]
fn messages_on_standard_error_are_not_part_of_the_json() {
    // iperf3 3.16 prints this when it is interrupted.
    let message = "echo 'iperf_json_finish: pthread_mutex_lock: Success' >&2";
    let [server, client] = [RECEIVED, SENT].map(|says| format!("{message}; {says}; {message}"));
    assert_eq!(bits(&server, &client), [Some(4000.0), Some(2000.0)]);
    // A client that fails says why in its JSON.
    let failing = format!("{message}; echo '{{\"error\":\"no route\"}}'; exit 1");
    let mut failing = shell(&failing);
    assert!(wait_until(END, || failing.check().is_err()));
    let error = failing.check().expect_err("it has failed").to_string();
    assert!(error.ends_with("(exit status 1): no route"), "{error}");
    let mut other = shell("echo begins; echo cannot go on >&2; exit 3");
    assert!(wait_until(END, || other.check().is_err()));
    let error = other.check().expect_err("it has failed").to_string();
    assert!(error.ends_with("(exit status 3): begins; cannot go on"), "{error}");
}

/// Returns how many TCP resets this namespace has sent.
fn resets_sent() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
    let mut tcp = text.lines().filter(|line| line.starts_with("Tcp: "));
    let [names, values] = [(); 2].map(|()| tcp.next().expect("a line of TCP").split(' '));
    let (_, value) = names.zip(values).find(|(name, _)| *name == "OutRsts").expect("OutRsts");
    value.parse().expect("a number")
}

/// As between two clients of a server in a guest.
#[test]
fn a_client_that_is_refused_is_started_again_until_the_server_listens() {
    if !is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::tagged("iperf3")).expect("test bed");
    let (at, port) = (lab.b.ipv4, iperf3_port(0));
    let mut server = lab.b.ns.command("iperf3");
    server.args(["-s", "-p", &port.to_string()]);
    let options = ["-t", LONGER_THAN_A_TURN, "-J"].map(str::to_owned);
    // A program ends with the thread that started it.
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let client = start_iperf3_client(&lab.a.ns, (at, port), &options, &[]);
            let mut client = client.expect("connected");
            assert!(is_connected(&lab.a.ns, (at, port)));
            client.check().expect("the client runs");
        });
        let is_refused = || lab.b.ns.run(resets_sent) > 0;
        assert!(wait_until(START, is_refused), "the client is refused first");
        let _server = Program::start("iperf3 -s", server, &[]).expect("a server");
        client.join().expect("it connects");
    });
}
