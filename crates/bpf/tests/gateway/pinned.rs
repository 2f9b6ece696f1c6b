use ringside_bpf as _;
