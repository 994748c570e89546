// Package promsd is service discovery for Prometheus and Alertmanager out of a Chubby cell: it follows
// the members of directories, and keeps a file for file_sd_configs for each, or answers http_sd_configs.
// The program chubby-promsd does that by a configuration file.
//
//	keeper, err := client.Keep(ctx, client.Config{NoCache: true})
//	defer keeper.Close(ctx)
//	d, err := promsd.New(promsd.Config{Sessions: keeper, Jobs: []promsd.Job{
//		{Name: "web", Path: "/ls/local/svc/web", File: "/etc/prometheus/sd/web.json"},
//	}})
//	err = d.Run(ctx)
//
// # Targets
//
// A target is a member of the directory (recipe.Publish, recipe.Announce, chubbyctl put --ephemeral)
// whose value is an address, or a recipe.Endpoint in JSON. It is listed from its announcement until it is
// withdrawn or its session ends. With Job.Services the list is that of recipe.Lookup: permanent files
// count too, and the path may be one file. A value without a usable address is passed over and counted;
// it holds up none of the others.
//
// Each target has the labels of its Job, and these, which Prometheus removes after relabeling:
//
//   - __meta_chubby_job, the name of the Job, and __meta_chubby_path, the directory;
//   - __meta_chubby_name and __meta_chubby_host, of the member (not with Job.Services);
//   - __meta_chubby_weight, if the endpoint has one;
//   - __meta_chubby_metadata_KEY for each entry of the endpoint's metadata. In KEY, everything but
//     letters, digits and "_" of ASCII is replaced by "_"; of two keys that become the same, the
//     first in the order of bytes is taken.
//
// # When the cell cannot be reached
//
// The list stays as it was: only an answer of the cell changes it. A fail-over, a lost session and a
// session opened again do not change it by themselves. Before the first answer there is no list: a file of
// an earlier run stays as it is, and HTTP answers 503, at which Prometheus keeps the targets that it has.
// The metric chubby_promsd_fresh is 0 meanwhile, and the log says so.
//
// # Files
//
// A file is replaced as a whole: the list is written to a temporary file in the same directory, whose name
// ends in .tmp, synced, and renamed. It is written only if it differs from what is there. Each two seconds
// it is compared again: a write that failed is tried again, and a file that somebody has changed or
// removed is restored. A file belongs to one Job of one process.
//
// # Goroutines
//
// Run has two for each Job and waits for them. No mutex is held across I/O.
package promsd
