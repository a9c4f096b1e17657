#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::observe`.

bellwire_fuzz::target!(bellwire_fuzz::observe::run);
