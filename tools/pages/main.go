// Command pages does what the pages for operators say, as a new operator would: it takes the commands and the
// configuration out of docs/deployment.md, docs/operations.md and docs/disaster-recovery.md, and runs
// them on hosts that are namespaces of this machine. A page that does not hold fails. Run it as root in the tools
// directory, as `make pages` does; without root, or where the system has no namespaces, it says that it is skipped.
//
// plan.go says which block is run where, and which are not and why; standins.go which commands are replaced.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

func main() {
	var err error
	if len(os.Args) == 4 && os.Args[1] == "hold" {
		err = holdHost(os.Args[2], os.Args[3])
	} else {
		err = try()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "pages: %v\n", err)
		os.Exit(1)
	}
}

// try tries the pages.
func try() error {
	docs := flag.String("docs", "../docs", "the directory of the pages")
	bin := flag.String("bin", "../bin", "the directory of chubbyd and chubbyctl")
	verbose := flag.Bool("v", false, "print what each block prints")
	required := flag.Bool("required", false, "fail where it would be skipped")
	flag.Parse()
	steps, err := planned(*docs)
	if err != nil {
		return err
	}
	if why := impossible(); why != "" {
		if *required {
			return fmt.Errorf("cannot run: %s", why)
		}
		fmt.Printf("pages: SKIPPED: %s\n", why)
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it takes more than %v", patience))
	defer cancel()
	begun := time.Now()
	w, err := newWorld(*bin, filepath.Join(*docs, "../deploy/systemd"))
	if err != nil {
		return err
	}
	defer func() { _ = w.close() }()
	w.echo = *verbose
	for _, s := range steps {
		if err := w.do(ctx, s); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return err
		}
	}
	fmt.Printf("pages: %d steps hold, in %.0f s\n", len(steps), time.Since(begun).Seconds())
	return w.close()
}

// impossible says why this machine cannot run it, or nothing.
func impossible() string {
	if runtime.GOOS != "linux" {
		return "it needs Linux"
	}
	if os.Geteuid() != 0 {
		return "it makes namespaces and mounts, for which it has to be root"
	}
	for _, tool := range []string{"ip", "nsenter", "setpriv", "bash", "runuser", "useradd", "curl", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			return tool + " is not installed (Debian: iproute2, util-linux, passwd, curl, openssl)"
		}
	}
	try := exec.Command("unshare", "--mount", "--net", "--pid", "--uts", "--fork", "sh", "-c",
		"mount --make-rprivate / && mount -t proc proc /proc && ip link add bridge0 type bridge && ip link add port1 type veth peer name port2")
	if out, err := try.CombinedOutput(); err != nil {
		return fmt.Sprintf("no namespaces here (%v): %s", err, out)
	}
	return ""
}
