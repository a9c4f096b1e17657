use std::path::PathBuf;
use std::time::Duration;

use bellwire::Admission;
use bellwire_cgroups::scan::Limits;

use super::{Patterns, Spec};
use crate::args::{Subject, positive_duration, user};

/// Provide a service until Ctrl-C (SIGINT) or SIGTERM
#[derive(Debug, clap::Args)]
#[command(after_help = "\
cgroups: publishes a snapshot after each change, and reports on stderr. On a system without \
cgroups, such as Windows, it provides 1000 synthetic ones, with a warning.
cgroups-lookup, apps: answer requests from /sys/fs/cgroup and /proc. On a system without \
these the command fails with exit code 10.
What a command of --names gets and prints: docs/services.md.

Examples:
  bellwire provide cgroups
  bellwire provide cgroups --interval 250ms --verbose
  bellwire provide cgroups --synthetic 5000
  bellwire provide apps
  bellwire provide cgroups-lookup --interval 5s
  bellwire provide cgroups --names docker --names file:/etc/bellwire/names
  bellwire provide cgroups --netipc --group-run-dir
  bellwire provide cgroups --enable '!*.mount !*/init.scope *'
  bellwire --run-dir /run/mine provide cgroups --root /sys/fs/cgroup/unified")]
pub(crate) struct Provide {
    /// What to provide
    #[arg(value_enum, value_name = "SUBJECT")]
    pub(crate) subject: Subject,
    /// The mount point of the cgroup hierarchies or, for apps, of proc [default: /sys/fs/cgroup, or /proc]
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Provide this many synthetic cgroups, which do not change, instead of this machine's
    #[arg(long, value_name = "N", conflicts_with = "root")]
    pub(crate) synthetic: Option<usize>,
    /// How often to scan for changes; cgroups-lookup: the maximum age of an answer
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) interval: Duration,
    /// The maximum number of cgroups; further ones are left out
    #[arg(long, default_value_t = Limits::default().items, value_name = "N")]
    pub(crate) max_cgroups: usize,
    /// The maximum depth below the root of a hierarchy; deeper cgroups are left out
    #[arg(long, default_value_t = Limits::default().depth, value_name = "LEVELS")]
    pub(crate) max_depth: usize,
    /// Users to admit besides this one and root: same-user, group:GROUP, user:USER[,USER...] or any, by name or number; sets the
    /// group and the mode of the socket, and of the run dir if it is created
    #[arg(long, default_value = "same-user", value_name = "WHO", value_parser = admission)]
    pub(crate) admit: Admission,
    /// Serve clients that speak netipc, too, in Netdata's run dir unless another is named [env: NETDATA_RUN_DIR] [default:
    /// /run/netdata]; their token is that of NETDATA_INVOCATION_ID, or of INVOCATION_ID
    #[arg(long)]
    pub(crate) netipc: bool,
    /// Accept a run dir that its group may write, as Netdata's is: members of that group can replace a provider
    #[arg(long)]
    pub(crate) group_run_dir: bool,
    /// Report every generation
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// A source of display names and labels of cgroups: docker[:SOCKET], podman[:SOCKET], k8s[:DIR], file:FILE or command:FILE;
    /// can be repeated: the first source that knows a cgroup names it
    #[arg(long, value_name = "SOURCE")]
    pub(crate) names: Vec<Spec>,
    /// Run the name command only for these cgroup paths [default: containers, pods and machines]
    #[arg(long, value_name = "PATTERNS", requires = "names")]
    pub(crate) rename: Option<Patterns>,
    /// How long a source may take for a name; a command that takes longer is killed
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) names_timeout: Duration,
    /// How long a name is cached
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = positive_duration)]
    pub(crate) names_age: Duration,
    /// Collect cgroups whose path matches; the others are listed as not enabled. The first pattern that matches decides; *
    /// matches anything, ! negates
    #[arg(long, value_name = "PATTERNS")]
    pub(crate) enable: Option<Patterns>,
    /// The same by display name; a cgroup has to pass both
    #[arg(long, value_name = "PATTERNS")]
    pub(crate) enable_names: Option<Patterns>,
}

fn admission(text: &str) -> Result<Admission, String> {
    match text.split_once(':') {
        None if text == "same-user" => Ok(Admission::SameUser),
        None if text == "any" => Ok(Admission::Any),
        Some(("user", users)) => {
            users.split(',').map(user).collect::<Result<_, _>>().map(Admission::Users)
        }
        Some(("group", group)) => {
            let number = group.parse().ok();
            let group = number.or_else(|| bellwire_doctor::group_named(group));
            group.map(Admission::Group).ok_or_else(|| format!("there is no such group: {text}"))
        }
        _ => Err("must be same-user, group:GROUP, user:USER[,USER...] or any".into()),
    }
}
