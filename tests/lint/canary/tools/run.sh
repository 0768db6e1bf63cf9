#!/usr/bin/env bash
echo "no purpose"
