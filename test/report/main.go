// Report reads what `go test -json` prints and makes of it what a person needs:
// one line per package as it ends, and a file with the failed tests, each with
// its own words and without the logs of what it tested.
//
//	go test -json ./... 2>&1 | report -failures FILE -log FILE
//
// It exits with 1 if anything failed. The log has everything.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	failures := flag.String("failures", "", "file that gets the failed tests")
	log := flag.String("log", "", "file that gets all output")
	flag.Parse()
	ok, err := run(os.Stdin, os.Stdout, *failures, *log)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, failuresPath, logPath string) (ok bool, err error) {
	log, err := os.Create(logPath)
	if err != nil {
		return false, fmt.Errorf("make the log: %w", err)
	}
	defer log.Close()
	r := newReport(out, log)
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return false, fmt.Errorf("read the tests' output: %w", err)
		}
	}
	text := r.failures()
	if err := os.WriteFile(failuresPath, []byte(text), 0o644); err != nil {
		return false, fmt.Errorf("write the failures: %w", err)
	}
	return text == "", nil
}
