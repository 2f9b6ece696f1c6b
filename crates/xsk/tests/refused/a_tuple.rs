use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[repr(C)]
struct RxTime(u64, u32, u32);

fn main() {}
