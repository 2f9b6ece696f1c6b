use super::*;

fn shell(script: &str) -> Program {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Program::start("a shell", command, &[]).expect("a shell")
}

#[test]
fn a_server_that_still_writes_is_not_interrupted() {
    // As iperf3 3.16 does, where a signal ends it in the middle of its output.
    let server = "trap 'echo {; exit 1' INT; sleep 0.3 & wait; echo '{\"end\":{\"sum_received\":{\"bytes\":500}}}'";
    let client = "echo '{\"end\":{\"sum_sent\":{\"seconds\":2,\"bits_per_second\":4000}}}'";
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
    assert!(wait_until(END, || matches!(
        on.programs[1].child.try_wait(),
        Ok(Some(_))
    )));
    assert_eq!(on.bits(), [Some(4000.0), Some(2000.0)]);
}
