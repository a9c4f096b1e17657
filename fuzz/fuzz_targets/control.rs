#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::control`.

bellwire_fuzz::target!(bellwire_fuzz::control::run);
