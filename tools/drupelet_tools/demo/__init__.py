"""`drupelet demo`: the whole product on real boards, carriers and Spark, on this machine."""
