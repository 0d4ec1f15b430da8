// Command measure gives figures about the code of the DaemonSet controller's core.
//
//	go run ./test/measure tokens DIR...   Go tokens of the production code below each folder
//	go run ./test/measure walk            how a pod event walks through the files of matrix and course
//
// Tokens do not depend on how lines are broken. The walk is counted by a copy of the packages that has a
// hook at the entry of each function; it is built by the Go command's overlay, and no file of the
// repository changes.
package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	err := fmt.Errorf("usage: measure tokens DIR... | measure walk")
	switch {
	case len(os.Args) > 2 && os.Args[1] == "tokens":
		err = tokens(os.Args[2:])
	case len(os.Args) == 2 && os.Args[1] == "walk":
		err = walk()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

// tokens prints how many tokens, lines and files the production code below each folder has.
func tokens(dirs []string) error {
	var sum count
	for _, dir := range dirs {
		var c count
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !isProduction(path) {
				return err
			}
			return c.add(path)
		})
		if err != nil {
			return fmt.Errorf("count the tokens of %s: %w", dir, err)
		}
		fmt.Printf("%8d tokens %6d lines %4d files  %s\n", c.tokens, c.lines, c.files, dir)
		sum = count{sum.tokens + c.tokens, sum.lines + c.lines, sum.files + c.files}
	}
	fmt.Printf("%8d tokens %6d lines %4d files  in all\n", sum.tokens, sum.lines, sum.files)
	return nil
}

func isProduction(path string) bool {
	return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
}

type count struct{ tokens, lines, files int }

// add counts the tokens of a file. Comments, and the semicolons that the scanner adds, are none.
func (c *count) add(path string) error {
	src, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile(path, files.Base(), len(src))
	s.Init(file, src, nil, 0)
	for {
		_, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok != token.SEMICOLON || literal == ";" {
			c.tokens++
		}
	}
	c.lines, c.files = c.lines+file.LineCount(), c.files+1
	return nil
}
