package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	// reachPatience is how long one answer may take, and askAgain how long a
	// datagram may before it is sent once more: datagrams may be lost.
	reachPatience = 10 * time.Second
	askAgain      = time.Second
	// reachAtOnce bounds how many are asked at the same time.
	reachAtOnce = 64
)

// target is one line of the list that reach works through.
type target struct {
	name string
	url  *url.URL
	want *regexp.Regexp
}

// reach asks everything in the list on its standard input at once, and prints what
// did not answer as it should. A line has a name, what to ask, and a regular
// expression for the answer, with tabs between them. What to ask is one of
//
//	http://HOST:PORT/PATH   udp://HOST:PORT   a:NAME   srv:NAME   ptr:ADDRESS   txt:NAME
//
// A name that must not exist is asked for with "no such host" as its answer.
func reach(ctx context.Context, _ []string, out io.Writer) error { return reachAll(ctx, os.Stdin, out) }

func reachAll(ctx context.Context, list io.Reader, out io.Writer) error {
	targets, err := readTargets(list)
	if err != nil {
		return err
	}
	said := make([]string, len(targets))
	free := make(chan struct{}, reachAtOnce)
	var all sync.WaitGroup
	for i, t := range targets {
		free <- struct{}{}
		all.Go(func() {
			said[i] = t.problem(ctx)
			<-free
		})
	}
	all.Wait()
	reached := 0
	for i, t := range targets {
		if said[i] == "" {
			reached++
			continue
		}
		fmt.Fprintf(out, "%s\t%s\n", t.name, said[i])
	}
	_, err = fmt.Fprintf(out, "reached %d of %d\n", reached, len(targets))
	return err
}

func readTargets(list io.Reader) (targets []target, err error) {
	for lines := bufio.NewScanner(list); ; {
		if !lines.Scan() {
			return targets, lines.Err()
		}
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 3 {
			return nil, fmt.Errorf("%q is not a name, what to ask, and the answer, with tabs between them", lines.Text())
		}
		t := target{name: fields[0]}
		t.url, err = url.Parse(fields[1])
		if err != nil {
			return nil, err
		}
		t.want, err = regexp.Compile(fields[2])
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
}

// problem says what came instead of the wanted answer; nothing if that came.
func (t target) problem(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	var answer strings.Builder
	var err error
	switch t.url.Scheme {
	case "http":
		err = getOnce(ctx, t.url.String(), &answer)
	case "udp":
		err = askDatagram(ctx, t.url.Host, &answer)
	default:
		err = lookup(ctx, []string{t.url.Scheme, t.url.Opaque}, &answer)
	}
	if err != nil {
		answer.WriteString(err.Error())
	}
	text := strings.TrimSpace(answer.String())
	if t.want.MatchString(text) {
		return ""
	}
	return fmt.Sprintf("%s said %q, want %q", t.url, text, t.want)
}

// getOnce asks over a connection of its own: another one may lead elsewhere.
func getOnce(ctx context.Context, url string, out io.Writer) error {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext}
	return fetch(ctx, &http.Client{Transport: transport}, url, out)
}

// askDatagram sends a question until it is answered.
func askDatagram(ctx context.Context, address string, out io.Writer) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	buffer := make([]byte, 1<<12)
	for question := "who?"; ; {
		if _, err := conn.Write([]byte(question)); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(askAgain)); err != nil {
			return err
		}
		n, err := conn.Read(buffer)
		switch {
		case err == nil:
			_, err = out.Write(buffer[:n])
			return err
		case ctx.Err() != nil || !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
	}
}
