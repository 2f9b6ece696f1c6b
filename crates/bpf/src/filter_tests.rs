use super::*;

#[test]
fn text_and_back() {
    for filter in [
        Filter::All,
        Filter::None,
        Filter::UdpPort(1),
        Filter::UdpPort(65535),
        Filter::Echo(7),
        Filter::EtherType(0x88b5),
        Filter::Wire,
    ] {
        assert_eq!(filter.to_string().parse(), Ok(filter));
    }
}

#[test]
fn terms_and_back() {
    for text in [
        "tcp:80",
        "udp:10000-20000",
        "tcp:80,udp:53",
        "icmp",
        "dst:192.0.2.10",
        "dst:2001:db8::10",
        "dst:0.0.0.0/0",
        "src:192.0.2.0/24,icmp",
        "dst:192.0.2.10,dst:2001:db8::/32,src:10.0.0.0/8,src:::1,tcp:1-65535,udp:7,icmp,arp",
    ] {
        let filter: Filter = text.parse().unwrap();
        assert!(matches!(filter, Filter::Match(_)), "{text}");
        assert_eq!(filter.to_string(), text);
    }
    // In any order.
    let texts = ["arp,tcp:80,dst:192.0.2.10", "dst:192.0.2.10,tcp:80,arp"];
    let [a, b] = texts.map(|text| text.parse::<Filter>());
    assert_eq!(a, b);
    assert_eq!("dst:192.0.2.10/32".parse::<Filter>(), "dst:192.0.2.10".parse());
}

#[test]
fn refuses_terms_that_are_nonsense() {
    for (text, why) in [
        ("tcp", "tcp needs a port"),
        ("tcp:0", "from 1 to 65535"),
        ("tcp:0-9", "from 1 to 65535"),
        ("tcp:90-80", "tcp:90-80 are no ports"),
        ("tcp:80-", "the port is no number"),
        ("tcp:80,udp:0", "from 1 to 65535"),
        ("tcp:80,tcp:80", "tcp:80 is given twice"),
        ("icmp,icmp", "icmp is given twice"),
        ("dst:192.0.2.1,arp,arp", "arp is given twice"),
        ("dst:192.0.2.1,dst:192.0.2.1/32", "given twice"),
        ("dst:192.0.2.1/24", "write 192.0.2.0/24"),
        ("src:2001:db8::1/64", "write 2001:db8::/64"),
        ("dst:192.0.2.0/33", "`192.0.2.0/33` is no address"),
        ("dst:192.0.2.0/", "is no address"),
        ("dst:192.0.2", "is no address"),
        ("dst:", "is no address"),
        ("dst", "dst needs an address"),
        ("dst:web.example", "is no address"),
        ("arp", "add dst:ADDRESS"),
        ("tcp:80,arp", "add dst:ADDRESS"),
        ("icmp:8", "icmp has no value"),
        ("icmp:", "icmp has no value"),
        ("dst:192.0.2.1,src:2001:db8::1", "no packet has"),
        ("tcp:80,", "unknown name ``"),
        ("tcp:80,sctp:80", "unknown name `sctp`"),
        ("tcp:80,echo:7", "echo cannot be combined"),
        ("all,tcp:80", "all cannot be combined"),
        ("tcp:80, udp:53", "unknown name ` udp`"),
    ] {
        let error = text.parse::<Filter>().unwrap_err().to_string();
        assert!(
            error.contains(&format!("`{text}`")) && error.contains(why),
            "{text}: {error}"
        );
    }
    let many: Vec<String> = (1..=17).map(|port| format!("tcp:{port}")).collect();
    assert!(many[..16].join(",").parse::<Filter>().is_ok());
    let error = many.join(",").parse::<Filter>().unwrap_err().to_string();
    assert!(error.contains("more than 16 ports"), "{error}");
    assert!(Filter::Match(PacketMatch::new()).check().is_err());
}

#[test]
fn arp_is_for_the_destinations_alone() {
    let packets = |text: &str| match text.parse().unwrap() {
        Filter::Match(packets) => packets,
        other => panic!("{other}"),
    };
    let own = packets("dst:192.0.2.0/28,dst:2001:db8::1,arp");
    for (address, is_own) in [
        ("192.0.2.15", true),
        ("192.0.2.16", false),
        ("2001:db8::1", true),
        ("::1", false),
    ] {
        assert_eq!(own.arp_for(address.parse().unwrap()).is_some(), is_own, "{address}");
    }
    let packets = packets("dst:192.0.2.0/28");
    assert_eq!(packets.arp_for("192.0.2.1".parse().unwrap()), None);
}

#[test]
fn knows_which_tcp_it_takes() {
    let source = "198.51.100.7".parse().unwrap();
    let destination = "192.0.2.1:22".parse().unwrap();
    for (text, takes) in [
        ("all", true),
        ("wire", true),
        ("none", false),
        ("udp:22", false),
        ("echo:22", false),
        ("ethertype:0x0800", true),
        ("ethertype:0x86dd", false),
        ("tcp:22", true),
        ("tcp:1-1000", true),
        ("tcp:23", false),
        ("udp:22,icmp", false),
        ("icmp", false),
        ("dst:192.0.2.1", true),
        ("dst:192.0.2.0/24,tcp:22", true),
        ("dst:192.0.2.2", false),
        ("src:198.51.100.7", true),
        ("src:198.51.100.8", false),
        ("dst:2001:db8::1", false),
    ] {
        let filter: Filter = text.parse().unwrap();
        assert_eq!(filter.takes_tcp(source, destination), takes, "{text}");
    }
}

#[test]
fn nonsense_is_refused_with_the_text_in_the_message() {
    for text in [
        "",
        "All",
        "udp",
        "udp:",
        "udp:0",
        "udp:65536",
        "echo",
        "echo:0",
        "udp:-1",
        "ethertype:88b5",
        "ethertype:0x",
        "ethertype:0x10000",
        "ethertype:0x05ff",
        "ethertype:0x0806",
        "sctp:80",
        "all:1",
        "wire:1",
    ] {
        let error = text.parse::<Filter>().unwrap_err().to_string();
        assert!(error.contains(&format!("`{text}`")), "{error}");
        assert!(error.contains("udp:PORT"), "{error}");
    }
}
