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

// The line of the README for crontabs, to the letter but for its times and its command, in the crontab of two hosts of a real cron: the
// job runs once, and cron has nothing to mail, of neither host. It mails what another line writes.
func TestCronHasNothingToMail(t *testing.T) {
	besideOthers(t)
	const cron = "/usr/sbin/cron"
	if _, err := os.Stat(cron); err != nil || os.Geteuid() != 0 {
		t.Skip("it needs Debian's cron, and root, to give it files of its own")
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^    \*/5 (\* \* \* \*) \$HOME/chubby/bin/chubbyctl acquire /ls/local/report (.*) -- logger "the report"$`).FindStringSubmatch(string(readme))
	if line == nil {
		t.Fatal("the README has no line for crontabs")
	}
	w := sharedWorld(t)
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(cron)
	if err != nil {
		t.Fatal(err)
	}
	file("sbin/cron", string(program), 0o755)
	file("sbin/sendmail", "#!/bin/sh\ncat >>"+dir+"/mail\n", 0o755)
	file("crontab", "", 0o644)
	file("cron.d/.placeholder", "", 0o644)
	job := fmt.Sprintf(`* %s %s --servers %s acquire %s %s -- sh -c 'echo ran >>%s/ran'`, line[1], bin("chubbyctl"), w.servers(), w.path("report"), line[2], dir)
	file("crontabs/root", strings.Join([]string{job, job, "* * * * * echo for the mail", ""}, "\n"), 0o600)
	host := command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", `cd "$0" && mount --bind crontabs /var/spool/cron/crontabs &&
		mount --bind cron.d /etc/cron.d && mount --bind crontab /etc/crontab && mount --bind sbin /usr/sbin && mount -t tmpfs tmpfs /run && exec /usr/sbin/cron -f`, dir)
	p := launch(t, host, (*exec.Cmd).Start)
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // it may not be there yet
		return string(text)
	}
	for end := time.Now().Add(patience(90 * time.Second)); read("ran") == "" || read("mail") == ""; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) || !p.running() {
			t.Fatalf("cron has not run the lines; it says %s%s", &p.stdout, &p.stderr)
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
