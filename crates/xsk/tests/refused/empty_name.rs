use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[repr(C)]
struct RxTime {
    #[hints(name = "")]
    rx_cpu: u32,
    btf_id: u32,
}

fn main() {}
