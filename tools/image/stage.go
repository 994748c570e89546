package main

import (
	"encoding/json"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// parseStage reads the configuration of an image from the last stage of a Containerfile. It knows the instructions that the
// stage has, each on one line; COPY is what assemble does.
func parseStage(text string) (v1.Config, error) {
	config := v1.Config{Volumes: map[string]struct{}{}, ExposedPorts: map[string]struct{}{}}
	inStage := false
	for i, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word == "FROM" {
			inStage = rest == "scratch"
			continue
		}
		if !inStage || word == "" || word[0] == '#' || word == "COPY" {
			continue
		}
		var err error
		switch word {
		case "ENV":
			config.Env = append(config.Env, rest)
		case "USER":
			config.User = rest
		case "VOLUME":
			config.Volumes[rest] = struct{}{}
		case "EXPOSE":
			for port := range strings.FieldsSeq(rest) {
				config.ExposedPorts[port+"/tcp"] = struct{}{}
			}
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &config.Entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &config.Cmd)
		default:
			err = fmt.Errorf("%s is not known here", word)
		}
		if err != nil {
			return v1.Config{}, fmt.Errorf("Containerfile, line %d: %w", i+1, err)
		}
	}
	if len(config.Entrypoint) == 0 || config.User == "" {
		return v1.Config{}, fmt.Errorf("Containerfile: the last stage, from scratch, has to say ENTRYPOINT and USER")
	}
	return config, nil
}
