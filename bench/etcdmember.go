package main

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// ready is the line that a member prints when it serves.
const ready = "ready"

// runMember runs one etcd member, with etcd's own defaults (election 1 s,
// heartbeat 100 ms, fsync on) but with a quiet log. It serves until standard
// input ends.
func runMember(args []string) error {
	var name, dir, client, peer, known, cluster string
	flags := flag.NewFlagSet(memberCommand, flag.ContinueOnError)
	flags.StringVar(&name, "name", "", "the member's name")
	flags.StringVar(&dir, "dir", "", "the member's data")
	flags.StringVar(&client, "client", "", "where clients reach it")
	flags.StringVar(&peer, "peer", "", "where it listens for members")
	flags.StringVar(&known, "known", "", "where members reach it")
	flags.StringVar(&cluster, "cluster", "", "all members, name=peer,…")
	if err := flags.Parse(args); err != nil {
		return err
	}
	clientURL, err := url.Parse(client)
	if err != nil {
		return err
	}
	peerURL, err := url.Parse(peer)
	if err != nil {
		return err
	}
	knownURL, err := url.Parse(known)
	if err != nil {
		return err
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.InitialCluster = name, dir, cluster
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peerURL}, []url.URL{*knownURL}
	cfg.LogLevel, cfg.LogOutputs = "error", []string{filepath.Join(filepath.Dir(dir), name+"-etcd.log")}
	cfg.EnableGRPCGateway = false

	signal.Ignore(os.Interrupt) // the terminal sends it to all processes; the bench closes the pipe
	end := inputEnd()
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd member %s: %w", name, err)
	}
	defer func() {
		// A member whose peers have ended first may take long, and the bench may be gone and not
		// wait for it.
		time.AfterFunc(stopTime, func() { os.Exit(1) })
		server.Close()
	}()
	slow := time.NewTimer(time.Minute)
	defer slow.Stop()
	select {
	case <-server.Server.ReadyNotify():
		fmt.Println(ready)
	case err := <-server.Err():
		return err
	case <-slow.C:
		return errors.New("no leader within a minute")
	case <-end:
		return nil
	}
	select {
	case err := <-server.Err():
		return err
	case <-end:
		return nil
	}
}
