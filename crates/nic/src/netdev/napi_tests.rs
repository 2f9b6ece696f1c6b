use super::*;

#[test]
#[cfg(target_endian = "little")]
fn a_real_answer_is_understood() {
    // A veth's NAPI instance on Linux 6.18, with a thread and times of its own.
    let bytes = [
        8, 0, 2, 0, 0x3b, 0x59, 0, 0, 8, 0, 1, 0, 3, 0, 0, 0, 8, 0, 8, 0, 1, 0, 0, 0, 8, 0, 4, 0, 0x48, 0x16, 0, 0, 8,
        0, 5, 0, 3, 0, 0, 0, 8, 0, 7, 0, 0x40, 0x4b, 0x4c, 0, 8, 0, 6, 0, 0x40, 0x0d, 3, 0,
    ];
    assert_eq!(
        Napi::from_attributes(Attributes(&bytes)),
        Some(Napi {
            id: 22843,
            irq: None,
            thread: Some(5704),
            threaded: Threaded::On,
            defer_hard_irqs: Some(3),
            gro_flush_timeout: Some(Duration::from_micros(200)),
            irq_suspend_timeout: Some(Duration::from_millis(5)),
        })
    );
}

#[test]
fn older_kernels_tell_less() {
    let read = |message: Message| Napi::from_attributes(message.attributes()).unwrap();
    let plain = || Message::new(0, 0).with_u32(NETDEV_A_NAPI_ID, 8193);
    // Linux 6.8: the interrupt, and a thread by its number only.
    let napi = read(plain().with_u32(NETDEV_A_NAPI_IRQ, 33).with_u32(NETDEV_A_NAPI_PID, 77));
    assert_eq!(
        (napi.irq, napi.thread, napi.threaded),
        (Some(33), Some(77), Threaded::On)
    );
    assert_eq!((napi.defer_hard_irqs, napi.gro_flush_timeout), (None, None));
    assert_eq!(read(plain()).threaded, Threaded::Off);
    assert_eq!(
        read(plain().with_u32(NETDEV_A_NAPI_THREADED, 2)).threaded,
        Threaded::BusyPoll
    );
    // Linux 6.18 with the thread switched off again.
    assert_eq!(
        read(plain().with_u32(NETDEV_A_NAPI_THREADED, 0)).threaded,
        Threaded::Off
    );
    assert_eq!(Napi::from_attributes(Message::new(0, 0).attributes()), None);
}

#[test]
fn times_of_any_length_are_sent_and_read() {
    let forever = NapiSetting::GroFlushTimeout(Duration::MAX).raw();
    assert_eq!(forever, (NapiField::GroFlushTimeout, u64::MAX));
    let answer = Message::new(0, 0).with_u64(NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT, u64::MAX);
    assert_eq!(raw_value(&answer, NapiField::GroFlushTimeout), Some(u64::MAX));
    assert_eq!(raw_value(&answer, NapiField::Threaded), None);
}
