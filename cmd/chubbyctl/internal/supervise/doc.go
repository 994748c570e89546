// Package supervise runs a command that must be gone, with everything it started,
// before a moment that may be put off but is never missed: the moment at which
// somebody else could hold the lock that the command runs under.
//
// On Unix the command's parent is a guardian, a second process of this program.
// The two talk over pipes in JSON lines: chubbyctl tells the guardian until
// when the command may run, as instants of the machine's boot-time clock (it
// counts on in suspend), and passes signals on; the guardian reports what
// becomes of the command. Neither waits for the other to read, nor for the user
// to read what is told. The guardian acts on the last instants it was told
// without further help, and at once when the pipe closes. So a chubbyctl that is
// stopped, killed or hung cannot let the command outlive its time.
//
// The other way round, a guardian that has not done its work in time, because it
// is stopped or hangs, is killed by chubbyctl, which kills the command then. Each
// of the two covers for the other. On Linux the end of chubbyctl also continues a
// guardian that is stopped. Nothing covers for both being stopped and the command not,
// until one of them is continued; nor for a guardian that is killed while
// chubbyctl is stopped: the command itself is killed at once (it has asked the system
// for that), but what it started runs until chubbyctl is continued.
//
// On Linux the guardian is also the reaper of orphans (PR_SET_CHILD_SUBREAPER),
// so nothing that the command starts escapes by leaving its process group or by
// losing its parent. Elsewhere on Unix only the process group is reached, and on
// other systems only the command itself, by chubbyctl's own doing; Limits says
// so in words.
//
// Not reached anywhere: what the command has other processes start for it (a
// service manager, a container daemon, another machine), and what runs as a user
// whom this one may not signal (sudo); the guardian reports the latter.
//
// # Goroutines
//
// A Process has one that talks to the guardian, one that reads its reports and
// one that tells the user; all end before Wait returns. The guardian has one loop, a reader of orders
// and, on Linux, a reader of its timer.
package supervise
