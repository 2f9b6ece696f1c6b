use super::*;

fn class(text: &str) -> (NtupleFlow, Option<u32>, Option<u32>) {
    let class: ClassArg = text.parse().unwrap();
    (class.flow, class.queue, class.cpu)
}

#[test]
fn classes_are_read() {
    let (pcp, udp) = (NtupleFlow::VlanPriority(5), NtupleFlow::UdpPort(7000));
    assert_eq!(class("pcp:5=1@0"), (pcp, Some(1), Some(0)));
    assert_eq!(class("udp:7000@3"), (udp, None, Some(3)));
    assert_eq!(class("udp:7000=2"), (udp, Some(2), None));
    assert_eq!(class("pcp:5"), (pcp, None, None));
    for wrong in ["", "5", "pcp:9=1", "pcp:5=x", "pcp:5=1@", "udp:=1"] {
        assert!(wrong.parse::<ClassArg>().is_err(), "{wrong}");
    }
}

#[test]
fn settings_are_read() {
    assert_eq!("pcp:5=1".parse(), Ok(RuleArg(NtupleFlow::VlanPriority(5), 1)));
    assert_eq!("0=1-2".parse(), Ok(CpusArg(0, vec![1, 2])));
    assert_eq!("1=none".parse(), Ok(CpusArg(1, Vec::new())));
    assert_eq!("3=5".parse(), Ok(EgressArg(3, 5)));
    let pin: PinArg = "4711:CPU 0/KVM=2".parse().unwrap();
    assert_eq!((pin.pid, pin.name.as_str(), pin.cpus), (4711, "CPU 0/KVM", vec![2]));
    assert!("3=8".parse::<EgressArg>().is_err());
    assert!("pcp:5".parse::<RuleArg>().is_err());
    assert!("0".parse::<CpusArg>().is_err() && "x=1".parse::<CpusArg>().is_err());
    assert!("vhost=1".parse::<PinArg>().is_err());
}
