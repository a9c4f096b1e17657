//! Builds the library as users get it, then C and C++ programs with it, and runs them: each file in `tests/c/` is one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use bellwire::{Lookup, RunDir, Server};
use bellwire_apps::{App, AppsLookup};
use bellwire_cgroups::{
    CgroupDetails, CgroupsLookup, CgroupsSnapshot, Hierarchy, Meta, Mode, Options, Orchestrator,
    SnapshotWriter, synthetic,
};

const STRICT: [&str; 6] = ["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wconversion"];
const SYSTEM: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// The library's folder below an installation in cargo's directory for tests, where the next run replaces it.
pub(crate) struct Installed {
    root: PathBuf,
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} ended with {}:\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// The functions of the installed header.
fn declared() -> Vec<String> {
    let header = installed().root.join("usr/local/include/bellwire.h");
    let header = std::fs::read_to_string(header).unwrap();
    let mut declared: Vec<_> = header
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '(')
        .filter_map(|word| word.split_once('(').map(|(name, _)| name))
        .filter(|name| name.starts_with("bw_"))
        .map(str::to_owned)
        .collect();
    declared.sort_unstable();
    declared.dedup();
    declared
}

fn is_there(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        println!("skipped: there is no {program}");
    }
    is_there
}

/// The words of a variable by which `ci/sanitizers` has the programs built and run in another way.
fn words(variable: &str) -> Vec<String> {
    let words = std::env::var(variable).unwrap_or_default();
    words.split_whitespace().map(str::to_owned).collect()
}

/// The command that such a variable begins.
fn begun_by(variable: &str) -> Option<Command> {
    let words = words(variable);
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments);
    Some(command)
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name)
}

pub(crate) fn installed() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        run(Command::new("make")
            .arg("-C")
            .arg(env!("CARGO_MANIFEST_DIR"))
            .args(["install", "PREFIX=/usr/local"])
            .arg(format!("DESTDIR={}", root.display())));
        Installed { root }
    })
}

impl Installed {
    fn lib(&self) -> PathBuf {
        self.root.join("usr/local/lib")
    }

    /// Builds a program with the static library, once.
    pub(crate) fn build(&self, compiler: &str, flags: &[&str], name: &str) -> PathBuf {
        let program = self.root.join(format!("{name}-{}", flags.join("").replace(['/', '='], "-")));
        // Several tests may want it, and none may run it while it is written.
        static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        let mut built = BUILT.lock().unwrap();
        if !built.insert(program.clone()) {
            return program;
        }
        let library = match words("BELLWIRE_C_LIBRARY") {
            words if words.is_empty() => {
                vec![self.lib().join("libbellwire.a").display().to_string()]
            }
            words => words,
        };
        run(begun_by("BELLWIRE_C_COMPILER")
            .unwrap_or_else(|| Command::new(compiler))
            .args(STRICT)
            .args(flags)
            .arg("-I")
            .arg(self.root.join("usr/local/include"))
            .arg("-o")
            .arg(&program)
            .arg(source(name))
            .args(["-x", "none"])
            .args(library)
            .args(SYSTEM));
        program
    }

    pub(crate) fn command(&self, program: &Path, dir: &tempfile::TempDir) -> Command {
        let mut command = match begun_by("BELLWIRE_C_UNDER") {
            Some(mut command) => {
                command.arg(program);
                command
            }
            None => Command::new(program),
        };
        command.env("BELLWIRE_RUN_DIR", dir.path()).env_remove("BELLWIRE_TOKEN");
        command.env("LD_LIBRARY_PATH", self.lib());
        command
    }
}

fn plays(compiler: &str, flags: &[&str], name: &str) {
    let program = installed().build(compiler, flags, name);
    let dir = tempfile::tempdir().unwrap();
    run(&mut installed().command(&program, &dir));
}

#[test]
fn every_function_works_in_c() {
    plays("cc", &["-std=c11"], "functions.c");
}

#[test]
fn every_function_works_with_the_address_and_undefined_behavior_sanitizers() {
    plays(
        "cc",
        &["-std=c11", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"],
        "functions.c",
    );
}

#[test]
fn nothing_is_allocated_for_a_call_in_a_steady_state() {
    plays("cc", &["-std=c11"], "steady.c");
}

/// The functions that no such file calls.
fn untested_in(is_among: impl Fn(&str) -> bool) -> Vec<String> {
    let mut tests = String::new();
    for file in std::fs::read_dir(source("")).unwrap() {
        let path = file.unwrap().path();
        if is_among(path.file_name().unwrap().to_str().unwrap()) {
            tests += &std::fs::read_to_string(path).unwrap();
        }
    }
    let called = |function: &String| {
        tests
            .match_indices(&format!("{function}("))
            .any(|(at, _)| !tests[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
    };
    declared().into_iter().filter(|function| !called(function)).collect()
}

#[test]
fn each_function_has_a_test_in_c() {
    let untested = untested_in(|name| name != "nulls.c");
    assert!(untested.is_empty(), "no file in c/tests/c/ calls {untested:?}");
}

#[test]
fn each_function_is_given_null() {
    let untested = untested_in(|name| name == "nulls.c");
    assert_eq!(untested, ["bw_version"], "c/tests/c/nulls.c calls all that take a pointer");
    plays("cc", &["-std=c11"], "nulls.c");
}

#[test]
fn threads_share_the_objects_that_the_header_documents_as_shareable() {
    plays("cc", &["-std=c11"], "threads.c");
}

/// That the run before sees what it has to see.
#[test]
fn one_client_in_two_threads_is_reported() {
    if !words("BELLWIRE_C_COMPILER").iter().any(|word| word == "-fsanitize=thread") {
        println!("skipped: only ThreadSanitizer sees it, in ci/sanitizers");
        return;
    }
    let program = installed().build("cc", &["-std=c11"], "threads.c");
    let dir = tempfile::tempdir().unwrap();
    let mut command = installed().command(&program, &dir);
    let output = command.arg("wrong").env("TSAN_OPTIONS", "halt_on_error=1").output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(66) && reported.contains("data race"), "{reported}");
}

#[test]
fn the_header_is_cpp17() {
    plays("c++", &["-std=c++17", "-x", "c++"], "layout.c");
}

#[test]
fn structs_have_the_sizes_and_offsets_that_the_library_has() {
    plays("cc", &["-std=c11"], "layout.c");
}

#[test]
fn programs_of_older_and_newer_headers_work() {
    let flags = ["-std=c11", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"];
    plays("cc", &flags, "sizes.c");
}

#[test]
fn bad_input_is_an_error_and_a_sentence() {
    plays("cc", &["-std=c11"], "bad_input.c");
}

#[test]
fn a_client_and_a_server_in_two_programs() {
    let server = installed().build("cc", &["-std=c11"], "server.c");
    let client = installed().build("cc", &["-std=c11"], "client.c");
    let dir = tempfile::tempdir().unwrap();
    // The client is first, and waits.
    let mut client = installed().command(&client, &dir).spawn().unwrap();
    let mut server = installed().command(&server, &dir).spawn().unwrap();
    let ended = client.wait().unwrap();
    assert!(ended.success(), "{ended}");
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn a_c_program_reads_the_services_that_a_rust_program_provides() {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = Server::builder(&RunDir::new(dir.path()));
    let publisher = builder.publish::<CgroupsSnapshot>().unwrap();
    let init = App {
        ppid: 7,
        uid: 8,
        started: Duration::from_millis(80),
        comm: "init".into(),
        cgroup: "/init.scope".into(),
        orchestrator: Orchestrator::Systemd,
        cgroup_name: "Init".into(),
        labels: vec![("unit".into(), "i".into())],
        pending: true,
    };
    let apps = move |_: &_, pid| {
        Ok(match pid {
            1 => Lookup::Known(init.clone()),
            2 => Lookup::RetryLater,
            _ => Lookup::Unknown,
        })
    };
    builder.serve::<AppsLookup>(apps).unwrap();
    let cgroups = |_: &_, path: String| {
        let details = CgroupDetails {
            id: 9,
            name: "x".into(),
            options: Options::UNIFIED,
            enabled: true,
            orchestrator: Orchestrator::Docker,
            labels: vec![("unit".into(), "x.s".into())],
        };
        Ok(if path == "/known" { Lookup::Known(details) } else { Lookup::Unknown })
    };
    builder.serve::<CgroupsLookup>(cgroups).unwrap();
    let server = builder.start().unwrap();
    let mut entries = synthetic::entries(1000, 1);
    let seven = entries.iter_mut().find(|entry| entry.id == 7).unwrap();
    seven.labels.push(("image".into(), "w:1".into()));
    seven.options |= Options::PENDING;
    let mounted = [Hierarchy { name: "unified".into(), root: "/sys/fs/cgroup".into() }];
    let writer = SnapshotWriter::with_hierarchies(&entries, &mounted).unwrap();
    let mut snapshot = vec![0; writer.encoded_len()];
    writer.write_to(Meta::now(Mode::V2), &mut snapshot).unwrap();
    publisher.publish(&snapshot).unwrap();
    let program = installed().build("cc", &["-std=c11"], "services.c");
    run(&mut installed().command(&program, &dir));
    server.stop();
}

#[test]
fn the_shared_library_has_its_name_and_the_functions_of_the_header_only() {
    let lib = installed().lib().join("libbellwire.so");
    let dynamic = run(Command::new("readelf").arg("-dW").arg(&lib)).stdout;
    assert!(String::from_utf8_lossy(&dynamic).contains("soname: [libbellwire.so.0]"));
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&lib)).stdout;
    let symbols = String::from_utf8(symbols).unwrap();
    let mut exported: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .filter_map(|name| name.strip_suffix("@@BELLWIRE_0"))
        .collect();
    exported.sort_unstable();
    let declared = declared();
    assert_eq!(exported, declared);
    let others: Vec<_> = symbols.lines().filter(|line| !line.contains("BELLWIRE_0")).collect();
    assert!(others.is_empty(), "{others:?}");
}

/// Bytes without symbols, on x86-64, and 3 % for other compilers: docs/c.md has the table.
#[test]
fn the_libraries_are_no_larger_than_their_budgets() {
    const SHARED: u64 = 1_320_000;
    const ADDED_TO_A_CALLER: u64 = 640_000;
    let len = |file: &Path| std::fs::metadata(file).unwrap().len();
    let program = |more: &[&str]| {
        let flags = [&["-std=c11", "-s", "-Wl,--gc-sections"], more].concat();
        len(&installed().build("cc", &flags, "size.c"))
    };
    let shared = len(&installed().lib().join("libbellwire.so.0"));
    let added = program(&[]) - program(&["-DEMPTY"]);
    println!(
        "libbellwire.so has {shared} bytes; libbellwire.a adds {added} to a program that calls"
    );
    assert!(shared <= SHARED && added <= ADDED_TO_A_CALLER, "{shared}, {added}");
}

#[test]
fn each_function_has_a_manual_page() {
    let pages = installed().root.join("usr/local/share/man/man3");
    for function in declared() {
        let page = pages.join(format!("{function}.3"));
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.contains(&format!("{function} \\- ")), "{text}");
        if is_there("groff") {
            let read = run(Command::new("groff")
                .args(["-man", "-Kutf8", "-Tutf8", "-ww", "-z"])
                .arg(&page));
            assert_eq!(String::from_utf8_lossy(&read.stderr), "", "{function}");
        }
    }
}

#[test]
fn cmake_finds_both_libraries() {
    const PROJECT: &str = "cmake_minimum_required(VERSION 3.13)
        project(found C)
        find_package(bellwire 0.1 REQUIRED)
        foreach(kind shared static)
            add_executable(${kind} main.c)
            target_link_libraries(${kind} bellwire::${kind})
            add_custom_command(TARGET ${kind} POST_BUILD COMMAND ${kind})
        endforeach()";
    const MAIN: &str = "#include <bellwire.h>
        #include <string.h>
        int main(void) { return strcmp(bw_version(), \"0.1.0\") != 0; }";
    if !is_there("cmake") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("prefix");
    installed();
    // As root, who may have no cargo.
    let make = ["-C", env!("CARGO_MANIFEST_DIR"), "install", "CARGO=no-cargo"];
    run(Command::new("make").args(make).arg(format!("PREFIX={}", prefix.display())));
    std::fs::write(dir.path().join("CMakeLists.txt"), PROJECT).unwrap();
    std::fs::write(dir.path().join("main.c"), MAIN).unwrap();
    let at = format!("-DCMAKE_PREFIX_PATH={}", prefix.display());
    run(Command::new("cmake").args(["-S", ".", "-B", "build", &at]).current_dir(&dir));
    run(Command::new("cmake").args(["--build", "build"]).current_dir(&dir));
}

/// In an empty folder, with a compiler, pkg-config and the installed library.
#[test]
fn the_tutorial_works_as_pasted() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/c.md");
    let page = std::fs::read_to_string(page).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (mut files, mut ran) = (0, false);
    for block in page.split("```").skip(1).step_by(2) {
        if let Some(code) = block.strip_prefix("c\n") {
            let name = code.strip_prefix("/* ").and_then(|rest| rest.split(' ').next()).unwrap();
            std::fs::write(dir.path().join(name), code).unwrap();
            files += 1;
        } else if let Some(commands) = block.strip_prefix("sh\n") {
            let mut shell = installed().command(Path::new("bash"), &dir);
            shell.args(["-euo", "pipefail", "-c", commands]).current_dir(dir.path());
            shell.env("PKG_CONFIG_SYSROOT_DIR", &installed().root);
            shell.env_remove("PKG_CONFIG_PATH");
            shell.env("PKG_CONFIG_LIBDIR", installed().lib().join("pkgconfig"));
            let output = run(&mut shell);
            let output = String::from_utf8(output.stdout).unwrap();
            assert!(
                output.starts_with("up for ") && output.contains(" s\ngeneration "),
                "{output}"
            );
            ran = true;
        }
    }
    assert_eq!((files, ran), (2, true));
}

#[test]
fn no_byte_is_leaked_or_used_outside_of_its_memory() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed");
        return;
    }
    let program = installed().build("cc", &["-std=c11", "-g"], "functions.c");
    let dir = tempfile::tempdir().unwrap();
    let mut valgrind = installed().command(Path::new("valgrind"), &dir);
    valgrind.args([
        "--quiet",
        "--error-exitcode=9",
        // It does not know all system calls that write memory, nor that two mappings show the same bytes.
        "--undef-value-errors=no",
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
    ]);
    run(valgrind.arg(program));
}
