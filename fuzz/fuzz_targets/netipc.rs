#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::netipc`.

bellwire_fuzz::target!(bellwire_fuzz::netipc::run);
