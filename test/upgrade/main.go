// Command upgrade runs small clusters whose program is replaced, forwards and back, and looks at what becomes of what
// runs. There is one file for each scenario:
//
//   - steps.go: from the release before to this program, servers and agents, one after another. Nobody's container
//     may notice, and of several servers some answer all the while (several.go).
//   - content.go: from this program to one that knows no content of revisions, and again to this one.
//   - middle.go: the same, killed in the middle of a rollback and of pinning.
//   - turns.go: servers of both programs beside each other, whose loops work in turn.
//   - sizes.go: variants and NodeStartups, to a program that knows neither and back.
//   - variants.go: from the release before to this program and back, in the middle of a change of variants.
//   - agents.go: agents of both other programs, and pods that were given content as they ran.
//
// `make test-upgrade` builds the programs and runs it. As root the nodes of steps.go are real too, and those of
// agents.go are real only.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// scenarios are played in this order.
var scenarios = []struct {
	name string
	play func(programs) error
}{
	{"steps", playSteps},
	{"content", playContent},
	{"middle", playMiddle},
	{"turns", playTurns},
	{"sizes", playSizes},
	{"variants", playVariants},
	{"agents", playAgents},
}

func main() {
	var p programs
	flag.StringVar(&p.old, "old", "", "the program of before, for steps, variants and agents")
	flag.StringVar(&p.older, "older", "", "a program of before content was part of revisions")
	flag.StringVar(&p.new, "new", "bin/everynode", "the program of now")
	flag.StringVar(&p.guide, "guide", "docs/operations.md", "the guide whose commands are played")
	flag.StringVar(&p.logs, "logs", "", "a folder for the logs of servers if a scenario fails")
	only := flag.String("only", "", "names of the scenarios to play, with commas between them; all without it")
	flag.Parse()
	klog.SetLogger(logr.Discard()) // that a server does not answer while its program is replaced is no news
	chosen := strings.Split(*only, ",")
	played := 0
	for _, s := range scenarios {
		if *only != "" && !slices.Contains(chosen, s.name) {
			continue
		}
		played++
		start := time.Now()
		if err := s.play(p); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", s.name, err)
			os.Exit(1)
		}
		fmt.Printf("%s: took %.0f s\n", s.name, time.Since(start).Seconds())
	}
	if played == 0 || *only != "" && played != len(chosen) {
		fmt.Fprintf(os.Stderr, "of the scenarios %q %d are known\n", *only, played)
		os.Exit(1)
	}
}
