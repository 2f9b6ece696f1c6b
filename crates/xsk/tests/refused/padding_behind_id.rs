use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[repr(C)]
struct RxTime {
    rx_ktime: u64,
    btf_id: u32,
}

fn main() {}
