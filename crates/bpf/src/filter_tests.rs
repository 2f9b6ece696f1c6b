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
        "tcp:80",
        "all:1",
        "wire:1",
    ] {
        let error = text.parse::<Filter>().unwrap_err().to_string();
        assert!(error.contains(&format!("`{text}`")), "{error}");
        assert!(error.contains("udp:PORT"), "{error}");
    }
}
