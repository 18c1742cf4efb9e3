//go:build !unix

package main

func before() {} // torture kills processes as unix does
