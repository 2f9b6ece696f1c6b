//! A store that may lack ports: addresses without one may do nothing.

use ringside_gateway_core::policy::ProfileId;

use super::*;

fn elsewhere(vni: u32) -> Neighbor {
    Neighbor {
        address: TenantAddress::new(Vni::new(vni).unwrap(), Ipv4Addr::new(10, 0, 0, 1).into()),
        ..neighbor(1, 1, 1)
    }
}

fn say<O: Object>(object: O) -> Change {
    O::into_change(Statement::Put(object))
}

/// A port of address 1 is there and damaged; 2 never had one, 3 has one.
fn damaged(file: &File) {
    let mut store = file.open();
    let said = [
        say(neighbor(1, 1, 1)),
        say(neighbor(2, 1, 1)),
        say(neighbor(3, 1, 1)),
        say(port(1, 1, 1)),
        say(port(3, 1, 1)),
    ];
    store.commit(said.iter(), 0).unwrap();
    drop(store);
    let other = rusqlite::Connection::open(file.0.join("store.db")).unwrap();
    // It is whose it is that is damaged.
    let damage = "UPDATE ports SET ip = x'0a0000fe' WHERE ip = x'0a000001'";
    assert_eq!(other.execute(damage, []).unwrap(), 1);
}

#[test]
fn addresses_without_a_port_may_do_nothing_while_ports_may_be_missing() {
    let file = File::new();
    damaged(&file);
    let runtime = runtime();
    let allows_nothing = |model: &Model, address: TenantAddress| {
        let tables = model.tables();
        let found = tables.neighbors.reader().find(address).unwrap();
        let policy = tables.policy.write();
        let nothing = ProfileId::new(found.policy).is_some_and(|profile| policy.groups_of(profile) == Some(&[]));
        assert!(found.policy != 0 || !nothing);
        nothing
    };
    // The second start has forgotten nothing.
    for start_number in 0..2_u32 {
        let cache = Arc::new(Cache::default());
        let (model, thread) = start(file.open(), &cache);
        assert!(allows_nothing(&model, address(1)), "whose port is lost");
        assert!(allows_nothing(&model, address(2)), "who may have had one");
        assert!(!allows_nothing(&model, address(3)));
        assert!(model.tables().has_policy() && model.tables().is_policed(address(1).vni));
        assert!(model.problems().concat().contains("ringside gateway repaired"));
        // What comes now is no exception, in a network of its own neither.
        let new = elsewhere(7 + start_number);
        assert!(!model.tables().is_policed(new.address.vni));
        runtime.block_on(model.write(vec![say(new)])).unwrap();
        assert!(allows_nothing(&model, new.address));
        assert!(model.tables().is_policed(new.address.vni));
        assert_eq!(cache.policy_changes.lock().unwrap().concat(), [new.address.vni]);
        assert_ne!(cache.neighbors.lock().unwrap()[&new.address].policy, 0);
        drop(model);
        thread.join().unwrap();
    }
    let cache = Arc::new(Cache::default());
    let (model, thread) = start(file.open(), &cache);
    // A port that goes takes nothing away of that.
    let gone = Port::into_change(Statement::Delete(address(3), 2));
    runtime.block_on(model.write(vec![say(port(1, 1, 1)), gone])).unwrap();
    assert!(!allows_nothing(&model, address(1)) && allows_nothing(&model, address(3)));
    let repaired = runtime.block_on(model.repaired()).unwrap();
    // 2, 3, and the two of other networks.
    assert_eq!((repaired.missing.len(), repaired.opened), (1, 4), "{repaired:?}");
    let policy = |address| model.tables().neighbors.reader().find(address).unwrap().policy;
    assert_eq!([address(2), address(3)].map(policy), [0, 0]);
    assert_ne!(policy(address(1)), 0);
    assert_eq!(cache.neighbors.lock().unwrap()[&address(2)].policy, 0);
    assert!(!model.tables().is_policed(elsewhere(7).address.vni));
    assert!(model.tables().is_policed(address(1).vni), "there is a port");
    assert!(model.problems().is_empty());
    // Again is no news.
    assert_eq!(runtime.block_on(model.repaired()).unwrap(), Repaired::default());
    drop(model);
    thread.join().unwrap();
    let (model, thread) = start(file.open(), &Arc::new(Cache::default()));
    assert_eq!(model.tables().neighbors.reader().find(address(2)).unwrap().policy, 0);
    assert!(model.problems().is_empty());
    drop(model);
    thread.join().unwrap();
}

/// Ports and groups in a file of which a page with ports is gone: each address goes by its rules, or by none at all.
#[test]
fn where_pages_of_ports_are_lost_nobody_goes_without_rules() {
    const COUNT: u32 = 3000;
    let file = File::new();
    let at = |number: u32| {
        let [_, _, c, d] = number.to_be_bytes();
        TenantAddress::new(Vni::new(1).unwrap(), Ipv4Addr::new(10, 0, c, d).into())
    };
    let groups = |number: u32| vec![GroupId(100_000 + number)];
    let mut said: Vec<Change> = (0..3).map(|id| say(group(id, 1, 1))).collect();
    for number in 0..COUNT {
        said.push(say(Port {
            address: at(number),
            groups: groups(number),
            version: 1,
        }));
        said.push(say(Neighbor {
            address: at(number),
            ..neighbor(1, 1, 1)
        }));
    }
    file.open().commit(said.iter(), 0).unwrap();
    let path = file.0.join("store.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let text = (100_000 + COUNT / 2).to_string();
    let place = bytes.windows(6).position(|part| part == text.as_bytes()).unwrap();
    bytes[place / 4096 * 4096..][..4096].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();

    let (model, thread) = start(file.open(), &Arc::new(Cache::default()));
    let tables = model.tables();
    let policy = tables.policy.write();
    let (mut reader, mut closed) = (tables.neighbors.reader(), 0);
    for number in 0..COUNT {
        let profile = ProfileId::new(reader.find(at(number)).unwrap().policy);
        let has = profile.and_then(|profile| policy.groups_of(profile));
        match has {
            Some([]) => closed += 1,
            has => assert_eq!(has, Some(&*groups(number)), "{number}"),
        }
    }
    assert!(closed > 10 && closed < COUNT / 2, "{closed}");
    drop(policy);
    drop(model);
    thread.join().unwrap();
}
