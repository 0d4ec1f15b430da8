package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// forkForever starts processes until it may not, and goes on trying: what a node's limits must withstand.
func forkForever(ctx context.Context, _ []string, out io.Writer) error {
	started, told := 0, false
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, "/proc/self/exe", "sleep")
		err := cmd.Start()
		if err == nil {
			started++
			continue
		}
		if !told {
			fmt.Fprintf(out, "no more than %d processes: %v\n", started, err)
			told = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// flood writes lines as fast as they are taken.
func flood(ctx context.Context, _ []string, out io.Writer) error {
	w := bufio.NewWriter(out)
	for n := 0; ctx.Err() == nil; n++ {
		if _, err := fmt.Fprintf(w, "line %d of a program that says far too much, and does not stop to think about it\n", n); err != nil {
			return err
		}
	}
	return nil
}

// fillFile writes MIB megabytes to a file and stays.
func fillFile(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: fill FILE MIB")
	}
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("%q is not a number of megabytes", args[1])
	}
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	for range size {
		if _, err := f.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "wrote %d MiB to %s\n", size, args[0])
	<-ctx.Done()
	return nil
}
