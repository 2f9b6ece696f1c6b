use super::{Coalescing, Knob, on_off, switch};
use crate::setting::Setting;

#[test]
fn names_are_those_of_ethtool() {
    assert_eq!(Knob::offload("gro"), Knob::offload("rx-gro"));
    assert_eq!(Knob::offload("gso").to_string(), "offload tx-generic-segmentation");
    assert_eq!(Knob::offload("anything").to_string(), "offload anything");
    for field in Coalescing::ALL {
        assert_eq!(field.name().parse(), Ok(field));
    }
    let nonsense = "rx-minutes".parse::<Coalescing>().unwrap_err();
    assert!(nonsense.contains("rx-usecs, rx-frames"), "{nonsense}");
}

#[test]
fn values_are_text() {
    assert_eq!([on_off(true), on_off(false)], ["on", "off"]);
    assert_eq!(
        ["on", "off", "yes", ""].map(switch),
        [Some(true), Some(false), None, None]
    );
    assert_eq!(Knob::cpu_list(&[]), "none");
    assert_eq!(Knob::cpu_list(&[3, 1, 2, 8]), "1-3,8");
    let rps = Knob::RpsCpus { queue: 0 };
    assert_eq!(
        ["3,2,8", "none", ""].map(|value| rps.normal(value.to_owned())),
        ["2-3,8", "none", "none"]
    );
    assert_eq!(Knob::offload("gro").normal("on".to_owned()), "on");
}

/// A state file of an earlier process holds them.
#[test]
fn a_knob_is_the_same_after_it_was_written_down() {
    let all = [
        Knob::offload("gro"),
        Knob::RpsCpus { queue: 1 },
        Knob::XpsCpus { queue: 2 },
        Knob::Coalescing {
            field: Coalescing::AdaptiveRx,
        },
        Knob::IrqCpus { irq: 41 },
        Knob::Governor { cpu: 3 },
    ];
    for knob in all {
        let host = knob.is_of_host();
        let setting = Setting::Knob { knob };
        assert_eq!(setting.of_host().is_some(), host);
        let text = serde_json::to_string(&setting).unwrap();
        assert_eq!(serde_json::from_str::<Setting>(&text).unwrap(), setting, "{text}");
    }
}
