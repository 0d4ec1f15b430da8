// Box is the program in the images of the agent's tests.
//
//	box sleep                      wait for SIGTERM, then exit 0
//	box stubborn                   print "deaf", then wait, whatever the signal
//	box exit N                     exit N at once
//	box say TEXT                   print TEXT and exit 0
//	box env NAME                   print a variable, then sleep
//	box last TEXT FILE N           write TEXT to FILE, exit N
//	box fail-once FILE             exit 1 if FILE does not exist (and make it), else sleep
//	box touch FILE                 make FILE
//	box fetch-program FILE         do what everynode does by that
//	box cat FILE...                print files
//	box fill-once MARK FILE MIB    write so many MiB to FILE unless MARK is there (and make it), then sleep
//	box hold-once MARK MIB         have so much memory unless MARK is there (and make it), then sleep
//	box hog                        use ever more memory
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
)

func main() {
	args := append(os.Args[1:], "", "", "")
	switch args[0] {
	case "sleep":
		sleep()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("deaf")
		for {
			time.Sleep(time.Hour)
		}
	case "exit":
		exit(args[1])
	case "say":
		fmt.Println(args[1])
	case "env":
		fmt.Println(os.Getenv(args[1]))
		sleep()
	case "last":
		must(os.WriteFile(args[2], []byte(args[1]), 0o644))
		exit(args[3])
	case "fail-once":
		if _, err := os.Stat(args[1]); err != nil {
			must(os.WriteFile(args[1], nil, 0o644))
			os.Exit(1)
		}
		sleep()
	case fetchpod.Command:
		program, err := fetchpod.Build(runtime.GOARCH)
		if err == nil {
			err = os.WriteFile(args[1], program, 0o555)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case "touch":
		must(os.WriteFile(args[1], nil, 0o644))
	case "cat":
		for _, name := range os.Args[2:] {
			text, err := os.ReadFile(name)
			must(err)
			fmt.Print(string(text))
		}
	case "fill-once":
		if first(args[1]) {
			must(os.WriteFile(args[2], make([]byte, mebibytes(args[3])), 0o644))
		}
		sleep()
	case "hold-once":
		var hold []byte
		if first(args[1]) {
			hold = bytes.Repeat([]byte{1}, mebibytes(args[2]))
		}
		sleep()
		runtime.KeepAlive(hold)
	case "hog":
		var hold [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			hold = append(hold, b)
		}
	case "pause", "":
		sleep()
	default:
		fmt.Fprintln(os.Stderr, "what is", args[0])
		os.Exit(2)
	}
}

func sleep() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	<-c
}

// first makes the file, and says whether it was not there.
func first(mark string) bool {
	_, err := os.Stat(mark)
	if err == nil {
		return false
	}
	must(os.WriteFile(mark, nil, 0o644))
	return true
}

func mebibytes(text string) int {
	n, err := strconv.Atoi(text)
	must(err)
	return n << 20
}

func exit(code string) {
	n, err := strconv.Atoi(code)
	must(err)
	os.Exit(n)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}
