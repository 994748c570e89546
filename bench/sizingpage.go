package main

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"time"
)

// thing is what one of something takes while it is there; act is what doing something once takes; see
// cmd/chubbyctl/internal/sizing, which reads them.
type (
	thing struct {
		Memory   float64 `json:"memory"`
		Snapshot float64 `json:"snapshot"`
	}
	act struct {
		Master   float64 `json:"master_ns"`
		Follower float64 `json:"follower_ns"`
		Clients  float64 `json:"clients"`
		Replica  float64 `json:"replica"`
		Log      float64 `json:"log"`
	}
	baseCost struct {
		Memory   float64 `json:"memory"`
		Disk     float64 `json:"disk"`
		Master   float64 `json:"master_cores"`
		Follower float64 `json:"follower_cores"`
		Replica  float64 `json:"replica"`
	}
)

// costs is what -sizing writes.
type costs struct {
	Date    string `json:"date"`
	Machine string `json:"machine"`
	Version string `json:"version"`
	Quiet   bool   `json:"quiet"`

	Base    baseCost `json:"base"`
	Session thing    `json:"session"`
	Program thing    `json:"program"`
	Handle  thing    `json:"handle"`
	Node    thing    `json:"node"`
	Byte    thing    `json:"byte"`
	Lock    thing    `json:"lock"`
	Copy    thing    `json:"copy"`

	Write     act `json:"write"`
	Read      act `json:"read"`
	Turn      act `json:"turn"`
	KeepAlive act `json:"keepalive"`
	Event     act `json:"event"`

	WriteBytes  float64 `json:"write_bytes"`
	Clients     int     `json:"clients"`
	MostWrites  float64 `json:"most_writes"`
	MostEntries float64 `json:"most_entries"`
	Interval    float64 `json:"keepalive_interval"`
}

//go:embed sizing.md.tmpl
var sizingTemplate string

// writePage writes the page, the costs beside it, and those that chubbyctl has in it.
func (c *costs) writePage(file string) error {
	if err := saveResults(filepath.Join(filepath.Dir(file), "..", "cmd", "chubbyctl", "internal", "sizing", "costs.json"), c); err != nil {
		return err
	}
	return writeDocument(file, sizingTemplate, c, map[string]any{
		"Costs": c, "Table": c.table().markdown(),
		"Sessions": sizingSessions, "Programs": sizingPrograms, "Nodes": sizingNodes, "Handles": sizingOpeners * sizingHandles, "Bytes": sizingBytes, "Watchers": sizingWatchers,
		"Memory": fmt.Sprintf("%.0f MiB", c.Base.Memory/(1<<20)), "Disk": fmt.Sprintf("%.1f MiB", c.Base.Disk/(1<<20)),
		"Cores":  fmt.Sprintf("%.3f processors as the master, and %.3f otherwise", c.Base.Master, c.Base.Follower),
		"Writes": fmt.Sprintf("%.0f", c.MostWrites), "Entries": fmt.Sprintf("%.0f", c.MostEntries), "Interval": fmt.Sprintf("%.1f s", c.Interval),
	})
}

// table has a line for each thing and each act.
func (c *costs) table() table {
	t := table{head: []string{"one", "memory", "in a snapshot", "processor time, master", "each other replica", "to and from clients", "to and from each other replica", "in the log"}}
	bytes := func(n float64) string { return fmt.Sprintf("%.0f B", n) }
	for _, row := range []struct {
		name string
		of   thing
	}{{"session", c.Session}, {"program: its two connections, with TLS", c.Program}, {"handle", c.Handle}, {"node, an empty file", c.Node}, {"lock that is held", c.Lock}, {"name in a client's cache", c.Copy}} {
		t.rows = append(t.rows, []string{row.name, bytes(row.of.Memory), bytes(row.of.Snapshot), "", "", "", "", ""})
	}
	t.rows = append(t.rows, []string{"byte of contents", fmt.Sprintf("%.2f B", c.Byte.Memory), fmt.Sprintf("%.2f B", c.Byte.Snapshot), "", "", "", "", ""})
	for _, row := range []struct {
		name string
		of   act
	}{{"write of 256 B", c.Write}, {"read of 256 B", c.Read}, {"lock taken and released", c.Turn}, {"KeepAlive", c.KeepAlive}, {"event", c.Event}} {
		a := row.of
		t.rows = append(t.rows, []string{row.name, "", "", readable(time.Duration(a.Master)), readable(time.Duration(a.Follower)), bytes(a.Clients), bytes(a.Replica), bytes(a.Log)})
	}
	return t
}
