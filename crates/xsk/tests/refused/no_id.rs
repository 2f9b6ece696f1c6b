use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[repr(C)]
struct RxTime {
    rx_ktime: u64,
    rx_cpu: u64,
}

fn main() {
    // It may be a field of another, but is in front of no packet by itself.
    _ = ringside_xsk::hints::Layouts::new().reader::<RxTime>();
}
