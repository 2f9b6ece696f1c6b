use std::thread;

use super::*;

const CURRENT: (u16, u16) = (CURRENT_DATA_SET, CURRENT_LENGTH);

/// What pmc of linuxptp 4.0 sends for `GET CURRENT_DATA_SET`, its identity and numbers replaced by ours.
#[test]
fn the_question_is_as_the_standard_has_it() {
    let bytes = question(1, 5, 7, CURRENT);
    assert_eq!(&bytes[..5], [0x1d, 2, 0, 72, 5]);
    assert_eq!(&bytes[30..34], [0, 7, 4, 0x7f]);
    assert_eq!(
        &bytes[34..48],
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]
    );
    assert_eq!(&bytes[48..54], [0, 1, 0, 20, 0x20, 1]);
    assert_eq!(told(&bytes), None, "a question is no answer");
}

fn answer(offset_ns: i64, delay_ns: i64, steps: u16) -> [u8; LENGTH] {
    let mut bytes: [u8; LENGTH] = question(0, 0, 1, CURRENT).try_into().unwrap();
    bytes[1] = 0x12;
    bytes[46] = RESPONSE;
    bytes[54..56].copy_from_slice(&steps.to_be_bytes());
    bytes[56..64].copy_from_slice(&(offset_ns << 16 | 0x8000).to_be_bytes());
    bytes[64..72].copy_from_slice(&(delay_ns << 16).to_be_bytes());
    bytes
}

#[test]
fn answers_are_read_and_others_left() {
    let good = answer(-1234, 567, 2);
    let expected = Ptp4l {
        offset_ns: -1234,
        path_delay_ns: 567,
        steps_removed: 2,
        is_master: false,
    };
    assert_eq!(told(&good), Some(expected));
    assert_eq!(told(&good[..71]), None);
    for (at, value) in [(0, 0x0), (46, 0), (49, 2), (53, 2)] {
        let mut other = good;
        other[at] = value;
        assert_eq!(told(&other), None, "byte {at}");
    }
}

/// One that is asked whether it gives the time: what its ports say, by their states.
#[test]
fn an_offset_of_nothing_is_a_masters_or_nobodys() {
    let port = |state| {
        let mut bytes = question(0, 0, 3, (PORT_DATA_SET, PORT_LENGTH));
        (bytes[46], bytes[64]) = (RESPONSE, state);
        bytes
    };
    assert_eq!((port(MASTER).len(), port(MASTER)[51]), (80, 28));
    assert_eq!(port_state(&port(MASTER)), Some(MASTER));
    assert_eq!(port_state(&port(MASTER)[..64]), None);
    assert_eq!(port_state(&question(0, 0, 3, (PORT_DATA_SET, PORT_LENGTH))), None);
    for (ports, is_master) in [(vec![4], false), (vec![4, MASTER], true)] {
        let path = std::env::temp_dir().join(format!("ringside-ptp4l-ports-{}-{is_master}", std::process::id()));
        _ = std::fs::remove_file(&path);
        let server = UnixDatagram::bind(&path).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let server = thread::spawn(move || {
            let mut bytes = [0; 100];
            loop {
                let (len, from) = server.recv_from(&mut bytes).unwrap();
                let to = from.as_pathname().unwrap();
                // To both profiles, as one would that takes any.
                if len == LENGTH {
                    server.send_to(&answer(0, 0, 0), to).unwrap();
                    continue;
                }
                assert_eq!((len, &bytes[52..54]), (80, &[0x20, 4][..]));
                for state in &ports {
                    server.send_to(&port(*state), to).unwrap();
                }
                return;
            }
        });
        let told = Ptp4l::ask_at(&path, 0).unwrap().unwrap();
        assert_eq!((told.is_master, told.knows_its_offset()), (is_master, is_master));
        server.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
    let unmeasured = told(&answer(0, 0, 1)).unwrap();
    let measured = told(&answer(0, 900, 1)).unwrap();
    assert_eq!([unmeasured, measured].map(|one| one.knows_its_offset()), [false, true]);
}

/// A socket that answers as ptp4l does: to one profile only, and with others' messages before.
#[test]
fn it_is_asked_over_its_socket() {
    let path = std::env::temp_dir().join(format!("ringside-ptp4l-test-{}", std::process::id()));
    _ = std::fs::remove_file(&path);
    assert_eq!(Ptp4l::ask_at(&path, 0).unwrap(), None, "there is none");
    let server = UnixDatagram::bind(&path).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let server = thread::spawn(move || {
        let mut bytes = [0; 100];
        loop {
            let (len, from) = server.recv_from(&mut bytes).unwrap();
            assert_eq!(len, LENGTH);
            if bytes[0] >> 4 == 1 {
                let to = from.as_pathname().unwrap();
                server.send_to(&bytes[..len], to).unwrap();
                server.send_to(&answer(42, 7, 1), to).unwrap();
                return server;
            }
        }
    });
    let told = Ptp4l::ask_at(&path, 0).unwrap().unwrap();
    assert_eq!((told.offset_ns, told.path_delay_ns, told.steps_removed), (42, 7, 1));
    let server = server.join().unwrap();
    let silent = Ptp4l::ask_at(&path, 3).unwrap_err();
    assert!(silent.to_string().contains("does not answer for domain 3"), "{silent}");
    drop(server);
    assert_eq!(Ptp4l::ask_at(&path, 0).unwrap(), None, "it has ended");
    std::fs::remove_file(&path).unwrap();
}
