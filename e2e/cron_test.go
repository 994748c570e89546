package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The line of the README for crontabs, to the letter except for its times and its command, in the crontab of two hosts: the job runs
// once, and cron has nothing to mail, of neither host. It mails what another line writes.
func TestCronHasNothingToMail(t *testing.T) {
	besideOthers(t)
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^    \*/5 \* \* \* \* \$HOME/chubby/bin/chubbyctl acquire /ls/local/report (.*) -- logger "the report"$`).FindStringSubmatch(string(readme))
	if line == nil {
		t.Fatal("the README has no line for crontabs")
	}
	w := sharedWorld(t)
	dir := t.TempDir()
	job := fmt.Sprintf(`%s --servers %s acquire %s %s -- sh -c 'echo ran >>%s/ran'`, bin("chubbyctl"), w.servers(), w.path("report"), line[1], dir)
	runCrontab(t, dir, job, job, "echo for the mail")
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // it may not be there yet
		return string(text)
	}
	for end := time.Now().Add(patience(90 * time.Second)); read("ran") == "" || read("mail") == ""; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("cron has not run the lines")
		}
	}
	w.must("acquire", w.path("report"), "--wait", patience(90*time.Second).String(), "--", "true") // behind --at-least of the one; the other has ended long ago
	if mail := read("mail"); strings.Contains(mail, "chubbyctl") || !strings.Contains(mail, "for the mail") {
		t.Errorf("cron mails\n%s", mail)
	}
	if runs := strings.Count(read("ran"), "ran"); runs > 2 { // in two minutes, perhaps
		t.Errorf("the job ran %d times", runs)
	}
}

// runCrontab has Debian's cron run lines each minute until the test ends, and add what it mails to the file mail in a directory.
// Without cron, or without root, which may give it files of its own, the lines are run once, as cron runs them.
func runCrontab(t *testing.T, dir string, lines ...string) {
	t.Helper()
	program, err := os.ReadFile("/usr/sbin/cron")
	if err != nil || os.Geteuid() != 0 {
		for _, line := range lines {
			launch(t, command("env", "-i", "HOME="+dir, "LOGNAME=root", "SHELL=/bin/sh", "PATH=/usr/bin:/bin", "/bin/sh", "-c", "exec >>mail 2>&1; cd && "+line), func(c *exec.Cmd) error {
				c.Dir = dir
				return c.Start()
			})
		}
		return
	}
	for name, text := range map[string]string{
		"sbin/cron": string(program), "sbin/sendmail": "#!/bin/sh\ncat >>" + dir + "/mail\n",
		"crontab": "", "cron.d/.placeholder": "", "crontabs/root": "* * * * * " + strings.Join(lines, "\n* * * * * ") + "\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o600) // cron takes no crontab that others may read
		if filepath.Base(filepath.Dir(name)) == "sbin" {
			mode = 0o755
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	p := launch(t, command("unshare", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", `cd "$0" && mount --bind crontabs /var/spool/cron/crontabs &&
		mount --bind cron.d /etc/cron.d && mount --bind crontab /etc/crontab && mount --bind sbin /usr/sbin && mount -t tmpfs tmpfs /run && exec /usr/sbin/cron -f`, dir), (*exec.Cmd).Start)
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // with all that cron has started; unshare ignores SIGTERM
}
