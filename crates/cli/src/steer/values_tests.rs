use ringside_measure::control::SteerEnd;

use super::*;
use crate::steer::Settings;

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

#[test]
fn another_machine_reads_what_is_written_for_it() {
    let settings = Settings {
        rules: vec!["pcp:5=1".parse().unwrap(), "udp:7000=0".parse().unwrap()],
        rss: vec![0, 2],
        irqs: vec!["1=0-1,3".parse().unwrap()],
        rps: vec!["0=none".parse().unwrap()],
        xps: vec!["2=1".parse().unwrap()],
        egress: vec!["5=6".parse().unwrap()],
        pins: Vec::new(),
    };
    let classes: Vec<ClassArg> = ["pcp:5=1@0", "udp:7000@3", "udp:1=2", "pcp:0"]
        .map(|text| text.parse().unwrap())
        .to_vec();
    let asked = settings.asked_of(&classes);
    assert_eq!(asked.irq, ["1=0-1,3"]);
    assert_eq!(Settings::of_errand(&asked).unwrap(), (settings, classes));
    let wrong = SteerEnd {
        rps: vec!["0".to_owned()],
        ..SteerEnd::default()
    };
    let why = Settings::of_errand(&wrong).unwrap_err().to_string();
    assert!(why.contains("is not QUEUE=CPUS"), "{why}");
}
