use super::*;
use crate::netdev::NapiField;

#[test]
fn a_process_is_told_from_others_with_its_number() {
    let this = Owner::this().unwrap();
    assert!(!this.command.is_empty() && this.boot.len() == 36, "{this:?}");
    assert_eq!(this.fate(&this), Fate::Alive);
    let with = |change: fn(&mut Owner)| {
        let mut owner = this.clone();
        change(&mut owner);
        owner.fate(&this)
    };
    assert_eq!(with(|owner| owner.start -= 1), Fate::Dead, "the number was used again");
    assert_eq!(with(|owner| owner.pid = u32::MAX), Fate::Dead);
    assert_eq!(with(|owner| owner.boot.clear()), Fate::OtherBoot);
    assert_eq!(with(|owner| owner.pid_namespace += 1), Fate::Unknown);
    // A restart outweighs: whatever namespace it was, nothing of it is left.
    let restarted = with(|owner| {
        owner.boot.clear();
        owner.pid_namespace += 1;
    });
    assert_eq!(restarted, Fate::OtherBoot);
}

#[test]
fn a_record_comes_back_from_its_file() {
    let place = Place {
        namespace: NamespaceId::current().unwrap(),
        index: 4,
        interface: "eth0".to_owned(),
    };
    let settings = [
        Setting::InterfaceFile {
            file: InterfaceFile::NapiDeferHardIrqs,
        },
        Setting::Napi {
            id: 8193,
            field: NapiField::DeferHardIrqs,
        },
        Setting::Affinity { thread: 7, start: 99 },
    ];
    let records: Vec<_> = settings
        .into_iter()
        .map(|setting| Record {
            order: u64::MAX,
            place: place.clone(),
            setting,
            before: "0".to_owned(),
            after: "2".to_owned(),
            abandoned: false,
            kept: false,
        })
        .collect();
    let sheet = Sheet {
        version: VERSION,
        owner: Owner::this().unwrap(),
        records,
    };
    let json = serde_json::to_value(&sheet).unwrap();
    assert_eq!(json["records"][0]["setting"]["file"], "napi_defer_hard_irqs");
    assert_eq!(serde_json::from_value::<Sheet>(json).unwrap(), sheet);

    let under = |n: usize| sheet.records[n].napi_under(InterfaceFile::NapiDeferHardIrqs, &place);
    assert_eq!([under(0), under(1), under(2)], [None, Some(8193), None]);
    let elsewhere = Place { index: 5, ..place };
    assert_eq!(
        sheet.records[1].napi_under(InterfaceFile::NapiDeferHardIrqs, &elsewhere),
        None
    );
    assert_eq!(
        sheet.records[1].napi_under(InterfaceFile::Threaded, &sheet.records[1].place),
        None
    );
}
