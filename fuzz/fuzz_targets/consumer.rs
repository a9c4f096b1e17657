#![cfg_attr(fuzzing, no_main)]
//! See `bellwire_fuzz::consumer`.

bellwire_fuzz::target!(bellwire_fuzz::consumer::run);
