use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[repr(align(8))]
struct RxTime {
    rx_ktime: u64,
    rx_cpu: u32,
    btf_id: u32,
}

fn main() {}
