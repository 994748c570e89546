package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/chromedp/chromedp"
)

// logIn starts a cell of one replica with certificates, to which people show tokens, and logs in, and out.
func logIn(ctx context.Context, b *browser, chubbyd, dir string) error {
	token, stop, err := startSecure(ctx, chubbyd, dir)
	if err != nil {
		return err
	}
	defer stop()
	const at = "https://127.0.0.1:9541/console/"
	if err := b.visit(at, "Log in to secure", "login"); err != nil {
		return err
	}
	b.mu.Lock()
	b.allow = "401" // the browser reports the status of a login that is refused
	b.mu.Unlock()
	if err := b.run(chromedp.SetValue("#token", "nonsense", chromedp.ByQuery), chromedp.Click(".login button", chromedp.ByQuery)); err != nil {
		return err
	}
	if err := b.await("this is no JWT"); err != nil {
		return err
	}
	b.mu.Lock()
	b.allow = ""
	b.mu.Unlock()
	if err := b.run(chromedp.SetValue("#token", token, chromedp.ByQuery), chromedp.Click(".login button", chromedp.ByQuery)); err != nil {
		return err
	}
	if err := b.await("Requests waiting"); err != nil {
		return err
	}
	var seen struct {
		Cookie, URL string
		Who         string
	}
	if err := b.run(chromedp.Evaluate(`({cookie: document.cookie, url: location.href, who: document.querySelector(".principal").innerText})`, &seen)); err != nil {
		return err
	}
	if seen.Cookie != "" || strings.Contains(seen.URL, token) || seen.Who != "ops.example.org" {
		b.fault("after the login: %+v", seen)
	}
	if err := b.visit(at+"sessions", "Sessions", ""); err != nil {
		return err
	}
	if err := b.run(chromedp.Click(".who button", chromedp.ByQuery)); err != nil {
		return err
	}
	if err := b.await("Log in to secure"); err != nil {
		return err
	}
	return nil
}

// startSecure starts a replica, and returns a token of its operator.
func startSecure(ctx context.Context, chubbyd, dir string) (token string, stop func(), err error) {
	run := func(args ...string) error {
		cmd := exec.CommandContext(ctx, chubbyd, args...)
		cmd.Dir = dir
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("chubbyd %s: %w: %s", strings.Join(args, " "), err, text)
		}
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	for _, args := range [][]string{
		{"certs", "init"}, {"certs", "server", "r1", "--cell", "secure", "--host", "127.0.0.1"}, {"certs", "token", "ops.example.org", "--for", "1h"},
	} {
		if err := run(args...); err != nil {
			return "", nil, err
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "certs", "ops.example.org.token"))
	if err != nil {
		return "", nil, err
	}
	token = strings.TrimSpace(string(text))
	args := []string{
		"serve", "--bootstrap", "--cell", "secure", "--id", "r1", "--members", "r1=127.0.0.1:9521,127.0.0.1:9531,127.0.0.1:9541", "--data", filepath.Join(dir, "data"),
		"--console", "--operators", "ops.example.org", "--token-keys", "certs/token-keys.json", "--token-issuer", "chubbyd-certs", "--token-audience", "chubby", "--log-level", "error",
		"--tls-cert", "certs/server-r1.crt", "--tls-key", "certs/server-r1.key", "--tls-ca", "certs/ca.crt",
		"--peer-tls-cert", "certs/replica-r1.crt", "--peer-tls-key", "certs/replica-r1.key", "--peer-tls-ca", "certs/replica-ca.crt",
	}
	cmd := exec.CommandContext(ctx, chubbyd, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	for range 200 {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9541/readyz", nil)
		if err != nil {
			return "", stop, err
		}
		if reply, err := http.DefaultClient.Do(q); err == nil {
			_ = reply.Body.Close()
			if reply.StatusCode == http.StatusOK {
				return token, stop, nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	return "", nil, errors.New("the replica with certificates is not ready")
}
