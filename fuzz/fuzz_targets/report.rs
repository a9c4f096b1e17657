#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::report`.

bellwire_fuzz::target!(bellwire_fuzz::report::run);
