// Package supervise runs a command, and ends it with everything it started before a
// deadline. The deadline is the moment at which somebody else could hold the lock that
// the command runs under. It may be put off; it is never missed.
//
// On Unix the command's parent is the guardian, a second process of this program.
// The two talk over pipes in JSON lines. chubbyctl tells the guardian until when the
// command may run, as instants of the machine's boot-time clock (which counts on in
// suspend), and passes signals on. The guardian reports what becomes of the command.
// Neither waits for the other to read, nor for the user to read notices. The guardian
// acts on the last instants that it was told without further help, and at once when the
// pipe closes. So a chubbyctl that is stopped, killed or hung cannot let the command
// outlive its time.
//
// The other way round, chubbyctl kills a guardian that has not done its work in time,
// because it is stopped or hangs, and then kills the command itself. On Linux the end
// of chubbyctl also continues a guardian that is stopped.
//
// When the command has ended, what it has left has some time to end by itself, as a logger
// does that reads the last lines; then it is stopped. The lock is held until all are gone.
//
// Two cases are not covered. When both are stopped and the command is not, it runs
// until one of them is continued. When the guardian is killed while chubbyctl is
// stopped, the system kills the command at once (PR_SET_PDEATHSIG), but what the command
// started runs until chubbyctl is continued; when chubbyctl is killed with the guardian, it
// runs on.
//
// On Linux the guardian also adopts orphans (PR_SET_CHILD_SUBREAPER), so nothing that
// the command starts escapes by leaving its process group or by losing its parent.
// On other Unix systems only the process group is reached. On all other systems there
// is no guardian, and chubbyctl reaches the command alone. Limits says so in words.
//
// Two kinds of process are reached nowhere: those that the command has others start for
// it (a service manager, a container daemon, another machine), and those of a user whom
// this one may not signal (sudo). The guardian reports the latter.
//
// The command starts as if its caller had started it: with the signals ignored that the caller ignores, as far as Go
// tells, by a shell if the file is a script without "#!", and as the process that LISTEN_PID names if that was chubbyctl.
// The controlling terminal's foreground goes between the command and the group of chubbyctl, in which there may be
// others of a pipeline, to whichever asks for it.
//
// # Goroutines
//
// A Process has three: one talks to the guardian, one reads its reports, and one gives
// notices to the user. All end before Wait returns. The guardian has one loop, one reader
// of orders and one goroutine of its alarm.
package supervise
