use super::*;

const MAP: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 3, 0, 0];

fn queues() -> Vec<QueueRange> {
    (0..4).map(|offset| QueueRange { count: 1, offset }).collect()
}

/// Against `struct tc_mqprio_qopt` of the kernel: num_tc, 16 priorities, hw, 16 counts, 16 offsets.
#[test]
fn mqprio_is_as_the_kernel_has_it() {
    let bytes = put_mqprio(&MAP, &queues());
    assert_eq!(bytes.len(), 82);
    assert_eq!((bytes[0], bytes[10], bytes[14], bytes[17]), (4, 1, 3, 0));
    assert_eq!(&bytes[18..22], [1_u16.to_ne_bytes(), 1_u16.to_ne_bytes()].concat());
    assert_eq!(
        &bytes[50..56],
        [0_u16.to_ne_bytes(), 1_u16.to_ne_bytes(), 2_u16.to_ne_bytes()].concat()
    );
    assert_eq!(mqprio(&bytes), Some((MAP, queues())));
    assert_eq!(mqprio(&bytes[..81]), None);
    // The kernel pads it and puts attributes behind.
    assert_eq!(mqprio(&[bytes, vec![7; 30]].concat()), Some((MAP, queues())));
}

#[test]
fn taprio_comes_back_before_and_after_its_begin() {
    let gates = Gates {
        base_ns: 5,
        cycle_ns: 1_000_000,
        entries: vec![
            Gate {
                open: 2,
                interval_ns: 300_000,
            },
            Gate {
                open: 1,
                interval_ns: 700_000,
            },
        ],
    };
    let bytes = put_taprio(&MAP, &queues(), &gates);
    assert_eq!(taprio(&bytes), Some((MAP, queues(), gates.clone())));
    let entry = find(find(&bytes, TAPRIO_ENTRY_LIST).unwrap(), TAPRIO_ENTRY).unwrap();
    assert_eq!(find(entry, ENTRY_CMD), Some(&[0_u8][..]), "a byte, and not its padding");
    assert_eq!(find(&bytes, TAPRIO_CLOCKID), Some(&11_i32.to_ne_bytes()[..]));
    // Not begun yet: nested.
    let mut nested = Vec::new();
    put(&mut nested, TAPRIO_PRIOMAP, &put_mqprio(&MAP, &queues()));
    put(&mut nested, TAPRIO_ADMIN, &bytes);
    assert_eq!(taprio(&nested), Some((MAP, queues(), gates)));
    assert_eq!(taprio(&nested[..20]), None);
    assert_eq!(taprio(&[]), None);
}

#[test]
fn etf_is_as_the_kernel_has_it() {
    for offload in [false, true] {
        let leaf = Etf {
            queue: 3,
            delta_ns: 250_000,
            offload,
        };
        let bytes = put_etf(leaf);
        assert_eq!(bytes.len(), 16);
        assert_eq!(etf(3, &bytes), Some(leaf));
    }
    assert_eq!(etf(3, &[0; 8]), None);
}
