package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// scrapeEvery is how often a node's metrics are read, as Prometheus' operators have it.
const scrapeEvery = 15 * time.Second

// scrapes are what reading the metrics again and again was like.
type scrapes struct {
	count, lines, bytes int
	longest             time.Duration
	err                 error
}

func (s scrapes) String() string {
	return fmt.Sprintf(
		"%d times read, every %v: %d lines, %d KB, %d ms at most with all that kubectl does.",
		s.count, scrapeEvery, s.lines, s.bytes>>10, s.longest.Milliseconds(),
	)
}

// scrapeAgain reads the metrics of the node's containers again and again, through the API server, until what it returns
// is called.
func (c cluster) scrapeAgain(ctx context.Context) (end func() scrapes) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan scrapes, 1)
	go func() {
		var s scrapes
		for {
			began := time.Now()
			page, err := c.kubectl(ctx, "", "get", "--raw", "/api/v1/nodes/"+node+"/proxy/metrics/cadvisor")
			if ctx.Err() != nil {
				done <- s
				return
			}
			if err == nil && !strings.Contains(page, "\ncontainer_scrape_error 0\n") {
				err = fmt.Errorf("something could not be measured")
			}
			if err != nil {
				s.err = err
			}
			s.count, s.lines, s.bytes, s.longest = s.count+1, strings.Count(page, "\n"), len(page), max(
				s.longest, time.Since(began),
			)
			select {
			case <-ctx.Done():
				done <- s
				return
			case <-time.After(scrapeEvery - time.Since(began)):
			}
		}
	}()
	return func() scrapes {
		cancel()
		return <-done
	}
}
