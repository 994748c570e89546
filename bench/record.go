package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// record is everything measured in one run, and on what. It is what the results file has.
type record struct {
	Date         string        `json:"date"`
	Machine      machine       `json:"machine"`
	Members      int           `json:"members"`
	Rounds       int           `json:"rounds"`
	Warm         time.Duration `json:"warm_ns"`
	Measure      time.Duration `json:"measure_ns"`
	Settle       time.Duration `json:"settle_ns,omitempty"` // of the growth
	AllEtcd      bool          `json:"etcd_all"`
	Acquisitions int64         `json:"acquisitions"`
	Places       []surveyed    `json:"places,omitempty"`
	Systems      []measured    `json:"systems"` // in the order of turns
	Results      []*result     `json:"results"` // in the order of the first measurements
}

// measured is a system that was measured.
type measured struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// key names a row of the tables.
type key struct {
	Row     string `json:"row"`
	Clients int    `json:"clients"`
	At      place  `json:"at,omitzero"`
}

func (k key) String() string {
	name := fmt.Sprintf("%s, %d", k.Row, k.Clients)
	if k.At != (place{}) {
		name += ", " + k.At.String()
	}
	return name
}

// result is one row of one system over all rounds.
type result struct {
	System string `json:"system"`
	key
	Rounds []sample `json:"rounds"`
}

func newRecord(about machine, o options) *record {
	return &record{
		Date:         time.Now().UTC().Format(time.DateOnly),
		Machine:      about,
		Members:      members,
		Rounds:       o.rounds,
		Warm:         o.warm,
		Measure:      o.measure,
		Settle:       o.settle,
		AllEtcd:      o.allEtcd,
		Acquisitions: o.acquisitions,
	}
}

// addSystem notes a system and its version, once.
func (r *record) addSystem(name, version string) {
	if !slices.ContainsFunc(r.Systems, func(m measured) bool { return m.Name == name }) {
		r.Systems = append(r.Systems, measured{name, version})
	}
}

func (r *record) add(k key, system string, s sample) {
	found := r.find(k, system)
	if found == nil {
		found = &result{System: system, key: k}
		r.Results = append(r.Results, found)
	}
	found.Rounds = append(found.Rounds, s)
}

func (r *record) find(k key, system string) *result {
	for _, have := range r.Results {
		if have.System == system && have.key == k {
			return have
		}
	}
	return nil
}

// median returns the medians of a row of a system, and false if it was not measured.
func (r *record) median(k key, system string) (sample, bool) {
	found := r.find(k, system)
	if found == nil {
		return sample{}, false
	}
	return medianOf(found.Rounds), true
}

// keys lists the rows that any system has, in order.
func (r *record) keys() []key {
	var list []key
	for _, have := range r.Results {
		if !slices.Contains(list, have.key) {
			list = append(list, have.key)
		}
	}
	return list
}

// names lists the systems.
func (r *record) names() []string {
	var list []string
	for _, m := range r.Systems {
		list = append(list, m.Name)
	}
	return list
}

// spread says what the lowest and the highest rate of a round is of the median of its row, for the systems with these names.
func (r *record) spread(systems ...string) string {
	low, high := 1.0, 1.0
	for _, found := range r.Results {
		median := medianOf(found.Rounds).Rate
		if !isLoop(found.key) || median == 0 || !slices.Contains(systems, found.System) {
			continue
		}
		for _, s := range found.Rounds {
			low, high = min(low, s.Rate/median), max(high, s.Rate/median)
		}
	}
	return fmt.Sprintf("%.0f %% to %.0f %%", 100*low, 100*high)
}

// writeLines writes one line about the run and one for each result.
func (r *record) writeLines(out io.Writer) error {
	encoder := json.NewEncoder(out)
	err := encoder.Encode(map[string]any{
		"machine": r.Machine, "members": r.Members, "rounds": r.Rounds, "measure_s": r.Measure.Seconds(), "systems": r.Systems,
	})
	if err != nil {
		return err
	}
	for _, found := range r.Results {
		line := struct {
			System string `json:"system"`
			key
			sample          // the medians
			Rounds []sample `json:"rounds"`
		}{found.System, found.key, medianOf(found.Rounds), found.Rounds}
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// loadRecord reads a results file.
func loadRecord(file string) (*record, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(r.Systems) == 0 || len(r.Results) == 0 {
		return nil, fmt.Errorf("%s has no results", file)
	}
	return r, nil
}
