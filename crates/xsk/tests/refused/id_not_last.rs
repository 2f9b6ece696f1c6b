use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[repr(C)]
struct RxTime {
    btf_id: u32,
    rx_cpu: u32,
}

fn main() {}
