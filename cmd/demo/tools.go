package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func sleep(ctx context.Context, args []string, _ io.Writer) error {
	if len(args) == 0 || args[0] == "infinity" {
		<-ctx.Done()
		return nil
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		seconds, numeric := strconv.ParseFloat(args[0], 64)
		if numeric != nil {
			return fmt.Errorf("%q is neither seconds nor a duration", args[0])
		}
		d = time.Duration(seconds * float64(time.Second))
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return nil
}

func ignoreTerm(_ context.Context, _ []string, out io.Writer) error {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGTERM, syscall.SIGINT)
	fmt.Fprintln(out, "started; only SIGKILL ends this")
	for s := range ignored {
		fmt.Fprintf(out, "ignored %s\n", s)
	}
	return nil
}

func fail(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fail", flag.ContinueOnError)
	after := flags.Duration("after", 0, "how long to live")
	code := flags.Int("code", 1, "exit status")
	if err := flags.Parse(args); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(*after):
	}
	fmt.Fprintf(out, "failing with exit status %d, as asked\n", *code)
	return exitCode(*code)
}

func cat(_ context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		_, err := io.Copy(out, os.Stdin)
		return err
	}
	for _, name := range args {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		// Files of the kernel, in /proc, are empty to whoever lets the kernel copy them.
		_, err = io.Copy(out, struct{ io.Reader }{f})
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func ls(_ context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		args = []string{"."}
	}
	for _, dir := range args {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			fmt.Fprintln(out, e.Name())
		}
	}
	return nil
}

func env(_ context.Context, _ []string, out io.Writer) error {
	for _, e := range os.Environ() {
		fmt.Fprintln(out, e)
	}
	return nil
}

func version(_ context.Context, _ []string, out io.Writer) error {
	_, err := fmt.Fprintln(out, os.Getenv("VERSION"))
	return err
}

func succeed(context.Context, []string, io.Writer) error { return nil }

func exitFalse(context.Context, []string, io.Writer) error { return exitCode(1) }

func write(_ context.Context, args []string, _ io.Writer) error {
	if len(args) < 2 {
		return errors.New("usage: write FILE TEXT")
	}
	return os.WriteFile(args[0], []byte(strings.Join(args[1:], " ")+"\n"), 0o644)
}

func rm(_ context.Context, args []string, _ io.Writer) error {
	for _, name := range args {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

func echo(_ context.Context, args []string, out io.Writer) error {
	_, err := fmt.Fprintln(out, strings.Join(args, " "))
	return err
}

func resolve(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: resolve NAME")
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, args[0])
	if err != nil {
		return err
	}
	for _, a := range addresses {
		fmt.Fprintln(out, a)
	}
	return nil
}

// lookup prints the records of a name, sorted, one in a line. A name without a dot
// at its end is searched for as any program does.
func lookup(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("usage: lookup a|srv|cname|ptr|txt NAME")
	}
	var lines []string
	var err error
	r, name := net.DefaultResolver, args[1]
	switch args[0] {
	case "a":
		lines, err = r.LookupHost(ctx, name)
	case "srv":
		var records []*net.SRV
		_, records, err = r.LookupSRV(ctx, "", "", name)
		for _, s := range records {
			lines = append(lines, fmt.Sprintf("%s:%d", s.Target, s.Port))
		}
	case "cname":
		lines = make([]string, 1)
		lines[0], err = r.LookupCNAME(ctx, name)
	case "ptr":
		lines, err = r.LookupAddr(ctx, name)
	case "txt":
		lines, err = r.LookupTXT(ctx, name)
	default:
		err = fmt.Errorf("unknown type %q", args[0])
	}
	if err != nil {
		return err
	}
	slices.Sort(lines)
	_, err = fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

func get(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: get URL")
	}
	return fetch(ctx, &http.Client{Timeout: 5 * time.Second}, args[0], out)
}

// fetch copies what a URL answers.
func fetch(ctx context.Context, client *http.Client, url string, out io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(out, response.Body); err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s answered %s", url, response.Status)
	}
	return nil
}
