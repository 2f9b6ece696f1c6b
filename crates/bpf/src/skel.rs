//! The skeletons in `generated`: one module for each program. `scripts/generate` makes them.

macro_rules! skeleton {
    ($name:ident) => {
        #[allow(
            unsafe_code,
            missing_docs,
            unreachable_pub,
            dead_code,
            clippy::all,
            clippy::undocumented_unsafe_blocks,
            clippy::allow_attributes_without_reason,
            reason = "generated code, with lint settings of its own"
        )]
        pub(crate) mod $name {
            include!(concat!("generated/", stringify!($name), ".skel.rs"));
        }
    };
}

skeleton!(xsk);
skeleton!(xsk_nic);
skeleton!(events);
skeleton!(gateway);
skeleton!(generate);
skeleton!(landing);
skeleton!(landing_xsk);
skeleton!(losses);
skeleton!(redirect);
skeleton!(redirect_lost);
skeleton!(reflect);
skeleton!(rings);
skeleton!(sink);
skeleton!(tag);
skeleton!(tc_drop);
skeleton!(trace);
skeleton!(trace_fentry);
#[cfg(feature = "testing")]
skeleton!(gateway_cost);
#[cfg(feature = "testing")]
skeleton!(testing);
