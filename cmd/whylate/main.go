// Command whylate tells an inference engineer why a token is late.
package main

import (
	"os"

	"github.com/whylate/whylate/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
