//! Whether two runs are of the same thing in the same place.

use serde_json::Value;

use crate::report::{Report, Verdict};
use crate::table::units::{percent, plural, time};

/// What stands among any report's parameters and is what the run came to.
const CAME_TO: [&str; 2] = ["schedule_digest", "floor"];

/// What else does so in the reports of each scenario. Everything that is not here is what a run was asked to be.
const CAME_TO_IN: [(&str, &[&str]); 7] = [
    ("fleet", &["claims_settled", "seats_held_at_end"]),
    ("soak", &["claims_settled", "seats_held_at_end", "copies_differing"]),
    ("mix", &["seats_held_at_end"]),
    ("listing", &["listings"]),
    ("budgets", &["charges"]),
    ("floor", &["cells"]),
    ("peers", &["turns", "ratios"]),
];

/// By so many hundredths of a core the rest of the machine may have been busier in one run than in the other: brokers that
/// wait for a core are slow, whatever the build.
const OTHER_WORK: f64 = 20.0;

/// More than this share of all cores, used by others, and how long a broker waits for one is chance.
const CROWDED: f64 = 0.25;

/// What differs between the two, or went wrong in either, so that no difference of their figures can be laid to the build.
pub(super) fn differing(before: &Report, after: &Report) -> Vec<String> {
    let mut all = Vec::new();
    let mut differ = |what: &str, was: String, is: String| {
        if was != is {
            all.push(format!("{what}: {was} before, {is} after"));
        }
    };
    fn known<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
    }
    let (was, is) = (&before.environment, &after.environment);
    differ("cpu_model", known(was.cpu_model.as_ref()), known(is.cpu_model.as_ref()));
    differ("cores", known(was.cores), known(is.cores));
    differ("kernel", known(was.kernel.as_ref()), known(is.kernel.as_ref()));
    differ("build profile", was.profile.clone(), is.profile.clone());
    let (was, is) = (&was.store, &is.store);
    differ("nats_server_version", known(was.nats_server_version.as_ref()), known(is.nats_server_version.as_ref()));
    differ("replicas", known(was.replicas), known(is.replicas));
    differ("storage", known(was.storage.as_ref()), known(is.storage.as_ref()));
    differ("sync_interval", known(was.sync_interval.as_ref()), known(is.sync_interval.as_ref()));
    differ("seed", before.seed.to_string(), after.seed.to_string());
    let mut names: Vec<&String> = before.params.keys().chain(after.params.keys()).collect();
    names.sort();
    names.dedup();
    let scenario = before.params.get("scenario").and_then(Value::as_str).unwrap_or_default();
    let came_to = CAME_TO_IN.iter().filter(|(of, _)| *of == scenario).flat_map(|(_, names)| names.iter());
    let came_to: Vec<&str> = came_to.chain(&CAME_TO).copied().collect();
    for name in names.into_iter().filter(|name| !came_to.contains(&name.as_str())) {
        differ(name, known(before.params.get(name)), known(after.params.get(name)));
    }
    let (was, is) = (before.own.other_cpu_percent, after.own.other_cpu_percent);
    let alike = match (was, is) {
        (Some(was), Some(is)) => (was - is).abs() <= OTHER_WORK,
        (None, None) => true,
        _ => false,
    };
    if !alike {
        let shown = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.1} %"));
        let of_a_core = if was.is_some() { " of a core" } else { "" };
        all.push(format!("other work on the machine: {}{of_a_core} before, {} after", shown(was), shown(is)));
    }
    for (which, report) in [("earlier", before), ("later", after)] {
        let stalls = &report.own.stalls;
        let share = report.environment.cores.map(|cores| cores as f64 * 100.0 * CROWDED);
        let crowded = report.own.other_cpu_percent.zip(share).filter(|(other, share)| other > share);
        let wrong = [
            (report.interrupted, "was interrupted".to_owned()),
            (report.duration_ns == 0, "measured nothing".to_owned()),
            (!report.faults.is_empty(), format!("had {}", plural(report.faults.len() as u64, "fault", "faults"))),
            (
                crowded.is_some(),
                format!("shared its machine with work that took {} of a core", percent(crowded.map_or(0.0, |c| c.0))),
            ),
            (stalls.count > 0, format!("stood still itself for {}, which is in its latencies", time(stalls.total_ns))),
        ];
        all.extend(wrong.into_iter().filter(|(is_so, _)| *is_so).map(|(_, what)| format!("the {which} run {what}")));
    }
    if before.findings.verdict() == Verdict::Failed {
        all.push("the earlier run failed: it is no measure of another".to_owned());
    }
    all
}
