//! Values, lines and keys.

use super::*;

fn text(text: &str) -> Text {
    Text {
        name: "my.toml".to_owned(),
        text: text.to_owned(),
    }
}

/// What is said of a file that cannot be read.
fn fault(content: &str) -> String {
    let read = text(content).read::<File>();
    read.map(|file| format!("{file:?}")).expect_err("a fault").to_string()
}

#[test]
fn a_fault_has_its_line_and_its_key() {
    for (content, told) in [
        (
            "title = \"x\"\nrounds = 0\n",
            "line 2, key rounds: 0 is out of range: 1 to 10000",
        ),
        ("rounds = \"five\"\n", "line 1, key rounds: invalid type"),
        (
            "[[host]]\nname = \"a\"\n\n[[host]]\nname = \"b\"\ncolour = 1\n",
            "line 6, key host.colour: unknown field `colour`",
        ),
        (
            "[[host]]\nname = \"a b\"\n",
            "line 2, key host.name: \"a b\" is no name",
        ),
        (
            "[[host]]\nname = \"a\"\nplace = \"there\"\n",
            "line 3, key host.place: unknown variant `there`",
        ),
        (
            "[[probe]]\nname = \"p\"\nfrom = \"a\"\n",
            "line 1, key probe: missing field `to`",
        ),
        ("turn = \"5\"\n", "line 1, key turn: \"5\" is no time with a unit"),
        ("turn = \"2h\"\n", "line 1, key turn: "),
        (
            "turn = 250\n",
            "line 1, key turn: invalid type: integer `250`, expected a time with its unit in quotes, such as \"250ms\"",
        ),
        (
            "rounds = 1e3\n",
            "line 1, key rounds: invalid type: floating point `1000.0`, expected a whole number",
        ),
        (
            "[[load]]\nname = \"l\"\nkind = \"tcp\"\nbitrate = 100\n",
            "line 4, key load.bitrate: invalid type: integer `100`, expected bits a second in quotes",
        ),
        // A slip that TOML makes easy.
        (
            "[host]\nname = \"a\"\n",
            "line 1, key host: invalid type: map, expected one or more, each with its name in double brackets",
        ),
        (
            "[[link]]\nends = [\"a\", \"b\", \"c\"]\n",
            "line 2, key link.ends: two are wanted, one for each end; there are 3",
        ),
        (
            "[[link]]\nends = [\"a\", \"b\"]\ninterfaces = [\"eth1\"]\n",
            "line 3, key link.interfaces: two are wanted, one for each end; there are 1",
        ),
        (
            "[[load]]\nname = \"l\"\nkind = \"iperf3-udp\"\nbitrate = \"fast\"\n",
            "line 4, key load.bitrate: \"fast\" is no bit rate",
        ),
        (
            "[[load]]\nname = \"l\"\nkind = \"stress-ng\"\ncpus = [0, -1]\n",
            "line 4, key load.cpus: -1 is out of range",
        ),
        ("[[host]]\nname = \"a\n", "line 2, invalid basic string"),
        (
            "[[steering]]\nname = \"s\"\nvlan = 1\n",
            "line 3, key steering.vlan: unknown field `vlan`",
        ),
    ] {
        let fault = fault(content);
        assert!(
            fault.starts_with("the lab file my.toml, ") && fault.contains(told),
            "{content}: {fault}"
        );
        assert!(!fault.contains('\n'), "{fault}");
    }
}

#[test]
fn bit_rates_are_as_iperf3_takes_them() {
    let read = |rate: &str| {
        let content = format!("[[load]]\nname = \"l\"\nkind = \"iperf3-udp\"\nbitrate = {rate:?}\n");
        text(&content).read::<File>().is_ok()
    };
    assert!(["1", "800K", "100M", "2G"].into_iter().all(read));
    assert!(!["", "M", "0", "0G", "1.5M", "10MM", "-1", "1 M"].into_iter().any(read));
}
